package client

import (
	"context"
	"errors"
	"log/slog"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// delivery is the outbox of a Client. The connection hands it each write that can also be
// sent later.
type delivery struct {
	spool        *spool
	deadline     time.Duration // below 0 for no waiting
	failOpen     bool
	dropWhenFull bool
	log          func() *slog.Logger
}

// Write sends a write, or spools it if the client has FailOpen.
func (d *delivery) Write(ctx context.Context, r *client.Request, send func(context.Context) error) error {
	if !d.failOpen {
		return d.tryToSend(ctx, send)
	}
	defer d.spool.lock(r.Agent, r.Run)()
	err := d.spool.clear(ctx, r.Agent, r.Run)
	if err == nil {
		if err = d.tryToSend(ctx, send); !passes(err) {
			return err
		}
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return err // the agent itself has canceled the call
	}
	return d.keep(r, err)
}

// tryToSend tries to send until the deadline.
func (d *delivery) tryToSend(ctx context.Context, send func(context.Context) error) error {
	if d.deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, d.deadline, errSilent)
		defer cancel()
	}
	return send(ctx)
}

var errSilent = errors.New("the daemon did not answer in time")

// keep spools a write. If that fails, it does what DropWhenFull says.
func (d *delivery) keep(r *client.Request, why error) error {
	err := d.spool.add(r)
	if err == nil {
		return &KeptError{Err: why}
	}
	err = ckpt.Wrap(ckpt.CodeStorageFull, err, "the daemon is away (%v), and the spool cannot take this: %v", why, err)
	if !d.dropWhenFull {
		return err
	}
	d.log().Error("a write was dropped", "agent", r.Agent, "run", r.Run, "error", err)
	return errDropped
}
