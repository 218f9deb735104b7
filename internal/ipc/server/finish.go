package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
)

// finish ends every call. It turns a panic or an error into a reply, releases shares,
// counts and logs.
func (c *call) finish() {
	abort := false
	if v := recover(); v != nil {
		abort = c.panicked(v)
	}
	if c.err != nil {
		abort = c.fail(c.err) || abort
	}
	for _, h := range c.holds[:c.held] {
		h.share.release(h.n)
	}
	c.conn.giveHead()
	c.account()
	if abort {
		panic(http.ErrAbortHandler) // the way to break a connection with net/http
	}
}

// panicked records a panic. It returns true if the connection must be broken off.
func (c *call) panicked(v any) bool {
	if v == http.ErrAbortHandler {
		return true
	}
	c.server.panics.Add(1)
	c.server.log.Error("a request panicked", "route", c.routeName(), "panic", v, "stack", string(debug.Stack()))
	e := ckpt.Errorf(ckpt.CodeInternal, "the daemon had an internal error: read the daemon's log")
	if c.route != nil && c.route.write {
		e.Outcome = ckpt.OutcomeUnknown
	}
	c.err = e
	return false
}

// fail reports err to the caller. If the reply has begun, it can only mark the reply as
// incomplete, and returns true.
func (c *call) fail(err error) (abort bool) {
	e := c.clear(err)
	c.err = e
	if e.Code == ckpt.CodeInternal || e.Code == ckpt.CodeCorrupt || e.Outcome == ckpt.OutcomeUnknown {
		c.server.log.Error("a request failed", "route", c.routeName(), "owner", c.scope.Owner, "agent", c.agent, "error", err)
	}
	if c.status != 0 {
		return true
	}
	p := ipc.NewProblem(e)
	var other *statusError
	if errors.As(err, &other) {
		p.Status = other.status
	}
	c.giveTime(0)
	writeProblem(c, p)
	return false
}

// clear turns err into a *ckpt.Error. A context that ended is not an internal fault.
func (c *call) clear(err error) *ckpt.Error {
	var e *ckpt.Error
	if errors.As(err, &e) || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return ckpt.AsError(err)
	}
	e = ckpt.Wrap(ckpt.CodeBusy, err, "the database took too long: try again")
	if c.route != nil && c.route.write {
		e.Outcome = ckpt.OutcomeUnknown
		e.Message = "the database took too long, and it is not known whether this was done: repeat the request with the same idempotency key"
	}
	return e
}

func (c *call) routeName() string {
	if c.route == nil {
		return ""
	}
	return c.route.name
}

func (c *call) account() {
	s := c.server
	s.inWork.Add(-1)
	s.answered.Add(1)
	if c.status >= 500 {
		s.failed.Add(1)
	}
	took := time.Since(c.began)
	if s.observe != nil {
		s.observe(Observation{Route: c.routeName(), Status: c.status, Code: ckpt.CodeOf(c.err), Took: took, Body: c.body})
	}
	if !s.log.Enabled(c.r.Context(), slog.LevelDebug) {
		return
	}
	s.log.Debug("answered", "route", c.routeName(), "status", c.status, "code", string(ckpt.CodeOf(c.err)),
		"owner", c.scope.Owner, "agent", c.agent, "pid", c.scope.PID, "took", took)
}
