package client

import (
	"context"
	"errors"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// Fate is what became of a write.
type Fate string

// The fates of a write that is not an error.
const (
	Stored  Fate = "stored"  // on disk in the daemon's database
	Spooled Fate = "spooled" // on disk in the spool, to be sent later
	Dropped Fate = "dropped" // nowhere; only with DropWhenFull
)

var errDropped = errors.New("dropped: it could neither be sent nor spooled")

// fate sorts the error of a write.
func fate(err error) (Fate, error) {
	var kept *client.KeptError
	switch {
	case err == nil:
		return Stored, nil
	case errors.As(err, &kept):
		return Spooled, nil
	case errors.Is(err, errDropped):
		return Dropped, nil
	}
	return "", err
}

// delivery is the outbox of a Client: the connection asks it about every write
// that may be made later.
type delivery struct{ *Client }

// Write sends a write, or spools it if the client has FailOpen.
func (c delivery) Write(ctx context.Context, r *client.Request, send func(context.Context) error) error {
	if !c.FailOpen {
		return c.tryToSend(ctx, send)
	}
	defer c.spool.lock(r.Agent, r.Run)()
	err := c.spool.clear(ctx, r.Agent, r.Run)
	if err == nil {
		if err = c.tryToSend(ctx, send); !passes(err) {
			return err
		}
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return err // the agent itself has given up
	}
	return c.keep(r, err)
}

// tryToSend sends within the deadline.
func (c delivery) tryToSend(ctx context.Context, send func(context.Context) error) error {
	if d := c.deadline(); d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, d, errSilent)
		defer cancel()
	}
	return send(ctx)
}

var errSilent = errors.New("the daemon did not answer in time")

// keep spools a write. If that fails, it does what the user chose.
func (c delivery) keep(r *client.Request, why error) error {
	err := c.spool.add(r)
	if err == nil {
		return &client.KeptError{Err: why}
	}
	err = ckpt.Wrap(ckpt.CodeStorageFull, err, "the daemon is away (%v), and the spool cannot take this: %v", why, err)
	if !c.DropWhenFull {
		return err
	}
	c.log().Error("a write was dropped", "agent", r.Agent, "run", r.Run, "error", err)
	return errDropped
}

// passes says whether a write that failed with err may succeed later.
func passes(err error) bool {
	if err == nil {
		return false
	}
	var e *ckpt.Error
	if !errors.As(err, &e) {
		return true // nobody there
	}
	switch e.Code {
	case ckpt.CodeBusy, ckpt.CodeQuota, ckpt.CodeStorageFull, ckpt.CodeInternal, ckpt.CodeCorrupt:
		return true
	}
	return false
}
