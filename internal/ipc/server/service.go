package server

import (
	"context"
	"errors"
	"net/http"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

func (c *call) archiveAudit() error {
	var r ckpt.ArchiveRequest
	if err := c.decode(&r); err != nil {
		return err
	}
	if err := r.Check(); err != nil {
		return err
	}
	ctx, cancel := c.writing(c.server.limits.LongTimeout)
	defer cancel()
	done, err := c.server.store.Audit.ArchiveAudit(ctx, c.scope, r)
	if err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, done)
}

func (c *call) listAudit() error {
	f := ckpt.AuditFilter{Agent: c.query.get("agent"), Run: c.query.get("run"), Action: c.query.get("action"),
		Who: c.query.get("who"), Outcome: c.query.get("outcome")}
	var err error
	if f.Since, err = c.query.time("since"); err != nil {
		return err
	}
	for name, to := range map[string]*int64{"after": &f.After, "before": &f.Before} {
		n, err := c.query.number(name, 0, 1<<62)
		if err != nil {
			return err
		}
		if n != nil {
			*to = *n
		}
	}
	if f.Newest, err = c.query.is("newest", f.Before != 0); err != nil {
		return err
	}
	if f.Limit, err = c.query.limit(); err != nil {
		return err
	}
	if err := f.Check(); err != nil {
		return err
	}
	return read(c, false, func(ctx context.Context) (*ckpt.AuditPage, error) {
		return c.server.store.Audit.Audit(ctx, c.scope, f)
	})
}

// verify makes the daemon check its audit log.
func (c *call) verify() error {
	var r survey.VerifyRequest
	if err := c.decode(&r); err != nil {
		return err
	}
	if !r.Chain {
		return ckpt.Errorf(ckpt.CodeInvalid, `give what to verify: {"chain": true}`)
	}
	ctx, cancel := c.reading(c.server.limits.LongTimeout)
	defer cancel()
	v, err := c.server.store.Audit.VerifyChain(ctx, c.scope)
	if err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, v)
}

func (c *call) getStatus() error {
	ctx, cancel := c.reading(c.server.limits.ReadTimeout)
	defer cancel()
	st, err := c.server.store.Service.Status(ctx, c.scope)
	if err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, st)
}

func (c *call) getVersion() error {
	return c.sendJSON(http.StatusOK, ckpt.Version{Name: "ckptsidecar", Version: c.server.version, API: 1, Schema: ckpt.SchemaVersion})
}

// getHealth only reports that the process answers.
func (c *call) getHealth() error { return c.sendJSON(http.StatusOK, ipc.Health{Status: "ok"}) }

// getReadiness reports whether saves are acknowledged.
func (c *call) getReadiness() error {
	ctx, cancel := c.reading(c.server.limits.ReadTimeout)
	defer cancel()
	var err error
	if c.server.ready != nil {
		err = c.server.ready(ctx)
	}
	if err == nil {
		err = c.server.store.Service.Ready(ctx)
	}
	if err != nil {
		return notReady(err)
	}
	state, problems := c.server.store.Service.Health()
	return c.sendJSON(http.StatusOK, ipc.Health{Status: "ok", State: state, Problems: problems})
}

// notReady turns an error that is not a *ckpt.Error into "busy". A probe only needs to
// know when to try again, not the cause.
func notReady(err error) error {
	var e *ckpt.Error
	if errors.As(err, &e) {
		return err
	}
	return ckpt.Wrap(ckpt.CodeBusy, err, "the daemon is not ready to save")
}

func (c *call) getMetrics() error {
	if !c.conn.caller.Admin {
		return c.refuse(ckpt.Errorf(ckpt.CodeDenied, "only an administrator may read the metrics: they cover all users"))
	}
	if c.server.metrics == nil {
		return ckpt.Errorf(ckpt.CodeNotFound, "this daemon has no metrics")
	}
	c.giveTime(0)
	c.server.metrics.ServeHTTP(c, c.r)
	return nil
}
