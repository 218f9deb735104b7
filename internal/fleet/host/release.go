package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/journal"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/lease"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
	"github.com/ckptsidecar/ckptsidecar/internal/periodic"
)

// drainMargin is how long a supervisor needs to end its agent when the lease is over.
const drainMargin = 3 * time.Second

// Release lets another host claim a run of this one at once. The engine gets everything
// first. Release refuses a run that is running.
func (c *claimant) Release(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef) (_ *fleet.Released, err error) {
	defer func() { err = c.engineFailed(ctx, sc, err) }()
	run, err := c.store.Run(ctx, sc, ref)
	if err != nil {
		return nil, err
	}
	if run.Status == ckpt.RunRunning {
		process := ""
		if run.PID != 0 {
			process = fmt.Sprintf(" (process %d)", run.PID)
		}
		return nil, ckpt.Errorf(ckpt.CodeConflict,
			"run %s of %s is running%s: end it first, or let go of all runs with `ckptsidecar fleet drain`", run.Run, run.Agent, process)
	}
	if err := c.allShipped(ctx); err != nil {
		return nil, err
	}
	uid, err := journal.New(c.store.Core).RunUID(ctx, run.Owner, run.Agent, run.Run)
	if err != nil {
		return nil, err
	}
	e, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	if err := e.Release(ctx, c.host.DB, uid); errors.Is(err, pg.ErrMoved) {
		return nil, ckpt.Wrap(ckpt.CodeConflict, err,
			"run %s of %s was not released: the engine does not have it, or another host owns it", run.Run, run.Agent)
	} else if err != nil {
		return nil, err
	}
	return &fleet.Released{Owner: run.Owner, Agent: run.Agent, Run: run.Run, UID: uid}, nil
}

// Drain lets go of all runs of this host before maintenance, or undoes that.
func (c *claimant) Drain(ctx context.Context, sc ckpt.Scope, r fleet.DrainRequest) (_ *fleet.Drained, err error) {
	defer func() { err = c.engineFailed(ctx, sc, err) }()
	if err := mustAdminister(sc, "drain it"); err != nil {
		return nil, err
	}
	if c.keeper == nil {
		return nil, ckpt.Errorf(ckpt.CodeConflict, "this host holds no lease in the fleet")
	}
	if r.Undo {
		c.keeper.letting.Lock()
		defer c.keeper.letting.Unlock()
		c.keeper.draining.Store(false)
		return &fleet.Drained{Host: c.host.Name}, nil
	}
	return &fleet.Drained{Host: c.host.Name, Drained: true}, c.drain(ctx)
}

// drain waits until no agent believes any longer that this host holds its lease. Then
// it ships everything, and tells the engine that other hosts may claim.
func (c *claimant) drain(ctx context.Context) error {
	left := c.lease.Left()
	c.keeper.draining.Store(true)
	c.lease.LetGo()
	if err := c.pause(ctx, left+drainMargin); err != nil {
		return ckpt.Errorf(ckpt.CodeBusy, "this host begins nothing any more, and has not let go of its runs yet: try again")
	}
	c.lease.LetGo() // a renewal may have been under way
	if err := c.allShipped(ctx); err != nil {
		return err
	}
	e, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer e.Close()
	c.keeper.letting.Lock()
	defer c.keeper.letting.Unlock()
	if !c.keeper.draining.Load() {
		return ckpt.Errorf(ckpt.CodeConflict, "the drain was taken back meanwhile: this host keeps its runs")
	}
	incarnation := c.keeper.last.Load()
	if err := e.Drain(ctx, c.host.DB, incarnation); err != nil {
		return ckpt.Wrap(ckpt.CodeBusy, err, "the engine did not confirm that this host has let go of its runs: try again")
	}
	return nil
}

// pause waits for the duration d by the clock of the lease.
func (c *claimant) pause(ctx context.Context, d time.Duration) error {
	for until := lease.Boottime() + d; lease.Boottime() < until; {
		if err := periodic.Wait(ctx, min(100*time.Millisecond, d)); err != nil {
			return err
		}
	}
	return nil
}
