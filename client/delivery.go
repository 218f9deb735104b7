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
	silence      time.Duration // how long to wait for an answer if there is no deadline
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
	waiting, err := d.spool.lookNow(r.Agent, r.Run) // outside of the deadline, which is for the daemon
	if err == nil {
		err = d.tryToSend(ctx, func(ctx context.Context) error {
			if _, err := d.spool.clear(ctx, r.Agent, r.Run, waiting); err != nil {
				return err
			}
			return send(ctx)
		})
	}
	if !passes(err) || r.Direct {
		return err
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) && !errors.Is(context.Cause(ctx), errSilent) {
		return err // the agent itself has canceled the call
	}
	return d.keep(r, err)
}

// begin sends the spooled writes of a run that starts, and then calls claim. While it gets on with
// these writes, they may take longer than the deadline. It returns how many it has dealt with.
func (d *delivery) begin(ctx context.Context, agent, run string, claim func(context.Context) error) (sent int, err error) {
	defer d.spool.lock(agent, run)()
	d.spool.lookAgain() // another process may have spooled something just now
	sendSpooled := d.spool.clearAtStart
	if d.deadline < 0 {
		sendSpooled = d.spool.clearNow
	}
	for {
		done := 0
		err := d.tryToSend(ctx, func(ctx context.Context) (err error) {
			if done, err = sendSpooled(ctx, agent, run); err != nil {
				return err
			}
			return claim(ctx)
		})
		sent += done
		if done == 0 || !passes(err) || ctx.Err() != nil {
			return sent, err
		}
	}
}

// tryToSend tries to send until the deadline.
func (d *delivery) tryToSend(ctx context.Context, send func(context.Context) error) error {
	limit := d.deadline
	if limit <= 0 {
		limit = d.silence
	}
	ctx, cancel := within(ctx, limit)
	defer cancel()
	return send(ctx)
}

// silenceMost is how long a request waits for its answer if nothing else limits it.
const silenceMost = time.Minute

var errSilent = errors.New("the daemon did not answer in time")

// within limits how long the daemon may take. When that is over, the agent has not canceled
// anything.
func within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, errSilent)
}

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
