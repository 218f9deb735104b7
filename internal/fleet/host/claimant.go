package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/lease"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/seal"
)

// claimant brings runs of other hosts to this one, and lets go of what is left here
// after other hosts have claimed runs. Each call uses its own connection to the engine.
type claimant struct {
	url    func() (string, error)
	store  *db.Store
	host   fleet.Host
	who    func() *fleet.Identities
	keys   func() (*seal.Ring, error) // nil for a host without keys
	grace  time.Duration
	lease  *lease.Lease // of this host; nil if it holds none
	healer *healer      // notices that the engine went back; nil for no check
	// remember adds to what the engine says about claims what the engine has lost; nil for
	// nothing.
	remember func(context.Context, *pg.Engine, []fleet.Taken) ([]fleet.Taken, error)
	// keeper renews that lease; nil if this host holds none.
	keeper *keeper
	// shipped waits until the engine has a row of this host's audit log; nil if nothing is
	// shipped.
	shipped func(ctx context.Context, n int64) error
	learn   func(ctx context.Context, e *pg.Engine, run string) error // is told of a run that this host now owns
	failing func() bool                                               // the last attempt to reach the engine failed
	turns   *turns
	here    sync.Map // the names of runs that are stored here, as far as this claimant has looked
	hereN   atomic.Int64
	brought *brought // nil to tell of a claim only once
	log     *slog.Logger
	told    atomic.Value // the error that was logged last, a string; "" after a claim
}

// mustAdminister refuses everyone except administrators. what names the action for the
// message.
func mustAdminister(sc ckpt.Scope, what string) error {
	if !sc.Admin {
		return ckpt.Errorf(ckpt.CodeDenied, "only an administrator of this host may %s", what)
	}
	return nil
}

func (c *claimant) dial(ctx context.Context) (*pg.Engine, error) {
	url, err := c.url()
	if err != nil {
		return nil, err
	}
	e, err := pg.Dial(ctx, url)
	if err != nil {
		return nil, &ckpt.Error{Code: ckpt.CodeBusy, Message: "the fleet's engine cannot be reached; nothing was claimed: try again", Err: err}
	}
	if _, _, err := c.healer.register(ctx, e, c.host); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// note logs what the engine has failed to do, if it is new.
func (c *claimant) note(err error) {
	if pg.Failed(err) && c.told.Swap(err.Error()) != err.Error() {
		c.log.Warn("the fleet's engine did not do what it was asked for a claim, a release or a drain", "error", err)
	}
}

// engineFailed turns an error of the engine into an answer, and logs it. Only an
// administrator is told what the engine said.
func (c *claimant) engineFailed(ctx context.Context, sc ckpt.Scope, err error) error {
	var known *ckpt.Error
	isKnown := errors.As(err, &known)
	if err == nil || ctx.Err() != nil || isKnown && known.Code == ckpt.CodeConflict {
		return err
	}
	c.note(err)
	switch {
	case isKnown:
		return err
	case errors.Is(err, pg.ErrTaken):
		return ckpt.Wrap(ckpt.CodeConflict, err, "somebody else was faster: look again with `ckptsidecar fleet runs`")
	case errors.Is(err, pg.ErrSchema):
		return ckpt.Wrap(ckpt.CodeConflict, err, "%v", err)
	case sc.Admin && (errors.Is(err, pg.ErrRights) || errors.Is(err, pg.ErrFull)):
		return ckpt.Wrap(ckpt.CodeConflict, err, "%v", err)
	case errors.Is(err, pg.ErrRights):
		return ckpt.Wrap(ckpt.CodeConflict, err, "this host lacks a right in the fleet's engine: ask an administrator; the daemon's log says which one")
	case errors.Is(err, pg.ErrFull):
		return ckpt.Wrap(ckpt.CodeConflict, err, "the fleet's engine is full: ask an administrator to make room")
	case !pg.Failed(err):
		return err
	}
	failed := &ckpt.Error{Code: ckpt.CodeBusy, RetryAfter: time.Second, Err: err,
		Message: "the fleet's engine did not do what it was asked for: try again; the daemon's log says why"}
	if sc.Admin {
		failed.Message = fmt.Sprintf("the fleet's engine did not do what it was asked for: try again: %v", err)
	}
	return failed
}
