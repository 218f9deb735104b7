package host

import (
	"context"
	"fmt"
	"sync"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
)

// turns says whose turn it is to ask the engine for runs and to bring them here. To bring a
// large run takes long, and holds up no call that only asks.
type turns struct {
	asks   turn // one call at a time asks
	brings turn // one call at a time brings a run

	mu   sync.Mutex
	runs map[string]turn // the runs that calls ask for or bring, by fleet.RunName
}

// turn is held by one call at a time.
type turn chan struct{}

func newTurns() *turns {
	return &turns{asks: make(turn, 1), brings: make(turn, 1), runs: map[string]turn{}}
}

// take waits for a turn. The caller must call done, and may do so twice.
func (t turn) take(ctx context.Context) (done func(), err error) {
	select {
	case t <- struct{}{}:
		return sync.OnceFunc(func() { <-t }), nil
	case <-ctx.Done():
		return nil, noTurn()
	}
}

func noTurn() error {
	return ckpt.Errorf(ckpt.CodeBusy, "other runs are brought here from the fleet just now: try again")
}

// try takes a run if no other call has it: while a run is brought, it looks like the
// remains of a claim that was interrupted. If another call has it, done is nil, and ended
// is closed when that call ends.
func (t *turns) try(run string) (done func(), ended <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if others, is := t.runs[run]; is {
		return nil, others
	}
	mine := make(turn)
	t.runs[run] = mine
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.runs, run)
		close(mine)
	}, nil
}

// wait takes a run when no other call has it.
func (t *turns) wait(ctx context.Context, run string) (done func(), err error) {
	for {
		done, ended := t.try(run)
		if done != nil {
			return done, nil
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return nil, noTurn()
		}
	}
}

// toBring waits until a run that this host has may be brought here. A call that must wait
// keeps no connection meanwhile, so it may return another connection than the one it got.
func (c *claimant) toBring(ctx context.Context, e *pg.Engine, run *fleet.Claimable) (_ *pg.Engine, done func(), err error) {
	select {
	case c.turns.brings <- struct{}{}:
		return e, func() { <-c.turns.brings }, nil
	default:
	}
	e.Close()
	turn, err := c.turns.brings.take(ctx)
	if err != nil {
		return nil, nil, err
	}
	if e, err = c.dial(ctx); err != nil {
		turn()
		return nil, nil, &ckpt.Error{Code: ckpt.CodeBusy, RetryAfter: time.Second, Err: err,
			Message: fmt.Sprintf("run %s of %s was claimed, and the fleet's engine cannot be reached to bring it here: try again", run.Run, run.Agent)}
	}
	done = func() { e.Close(); turn() }
	if _, err := c.mine(ctx, e, run); err != nil {
		done()
		return nil, nil, err
	}
	return e, done, nil
}
