package retention

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/periodic"
)

// round is one round of a worker.
type round struct {
	*Worker
	Result
	began   time.Time       // the time by which ages are judged; zero if the clock is not trusted
	planned map[string]bool // in a dry run: the checkpoints in Would
}

// errPutOff ends a round. The next round does the rest.
var errPutOff = errors.New("put off")

// maxErrors is the most errors that a Result holds.
const maxErrors = 10

func (r *round) all(ctx context.Context) error {
	r.began = r.Guard.Trusted()
	r.planned = map[string]bool{}
	for _, part := range []func(context.Context) error{r.runs, r.budgets, r.keys, r.judged} {
		err := part(ctx)
		if errors.Is(err, errPutOff) {
			r.PutOff = true
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// now returns the time of the round as long as the clock is trusted. If the clock jumps
// in the middle of a round, removal by age stops with the next transaction.
func (r *round) now() time.Time {
	if r.began.IsZero() || r.Guard.Trusted().IsZero() {
		r.Guarded, r.began = true, time.Time{}
	}
	return r.began
}

// runs goes through the runs that may have something to remove, slice by slice.
func (r *round) runs(ctx context.Context) error {
	return r.slices(ctx, func(after int64, limit int) ([]int64, error) {
		return r.Store.Due(ctx, r.now(), after, limit)
	}, func(runs []int64) error {
		if err := r.try(ctx, runs, r.prune); err != nil || r.DryRun {
			return err
		}
		return r.try(ctx, runs, r.drop)
	})
}

func (r *round) prune(ctx context.Context, runs []int64) error {
	return r.repeat(ctx, func() (more bool, err error) {
		removed, err := r.Store.Apply(ctx, runs, Plan, r.now(), r.slice(), r.DryRun)
		r.count(removed)
		return !r.DryRun && len(removed) >= r.slice(), err
	})
}

func (r *round) drop(ctx context.Context, runs []int64) error {
	return r.repeat(ctx, func() (more bool, err error) {
		now := r.now()
		if now.IsZero() {
			return false, nil
		}
		dropped, more, err := r.Store.Drop(ctx, runs, Over, now)
		r.Dropped += dropped
		return more, err
	})
}

// budgets trims the agents that are over their budgets, and then the whole database.
func (r *round) budgets(ctx context.Context) error {
	trim := func(agents []int64) error {
		for i := range agents {
			if err := r.try(ctx, agents[i:i+1], r.trim); err != nil {
				return err
			}
		}
		return nil
	}
	err := r.slices(ctx, func(after int64, limit int) ([]int64, error) {
		return r.Store.OverBudget(ctx, after, limit)
	}, trim)
	if err != nil {
		return err
	}
	return trim([]int64{wholeDatabase})
}

func (r *round) trim(ctx context.Context, agent []int64) error {
	return r.repeat(ctx, func() (more bool, err error) {
		removed, over, err := r.Store.Trim(ctx, agent[0], r.budget, r.slice(), r.DryRun)
		r.count(removed)
		if err != nil || over <= 0 {
			return false, err
		}
		if r.DryRun || len(removed) == 0 {
			r.Unmet = append(r.Unmet, agent[0])
			return false, nil
		}
		return true, nil
	})
}

// budget is Budget without the checkpoints that the dry run has already listed.
func (r *round) budget(runs []History, over int64) ([]Verdict, int64) {
	return BudgetWithout(runs, over, func(id string) bool { return r.planned[id] })
}

// keysAtOnce is how many idempotency keys are removed in the place of one checkpoint.
const keysAtOnce = 10

func (r *round) keys(ctx context.Context) error {
	if r.DryRun || r.now().IsZero() {
		return nil
	}
	limit := keysAtOnce * r.slice()
	return r.try(ctx, nil, func(ctx context.Context, _ []int64) error {
		return r.repeat(ctx, func() (more bool, err error) {
			now := r.now()
			if now.IsZero() {
				return false, nil
			}
			n, err := r.Store.Expire(ctx, now.Add(-cmp.Or(r.KeyKeep, DefaultKeyKeep)), limit)
			r.Expired += n
			return n >= limit, err
		})
	})
}

// judged notes that all ages were judged, if they were.
func (r *round) judged(ctx context.Context) error {
	if r.DryRun || r.Failed > 0 {
		return nil
	}
	return r.try(ctx, nil, func(ctx context.Context, _ []int64) error {
		return r.Store.Judged(ctx, r.now())
	})
}

// slices calls do with ids, one slice at a time, until there are no more.
func (r *round) slices(ctx context.Context, list func(after int64, limit int) ([]int64, error), do func([]int64) error) error {
	for after := int64(0); ; {
		ids, err := list(after, r.slice())
		if err != nil {
			return r.fail(ctx, err)
		}
		if len(ids) == 0 {
			return nil
		}
		if err := do(ids); err != nil {
			return err
		}
		if len(ids) < r.slice() {
			return nil
		}
		after = ids[len(ids)-1]
		if err := r.pause(ctx); err != nil {
			return err
		}
	}
}

// repeat calls do, which is one transaction, until there is nothing left to do.
func (r *round) repeat(ctx context.Context, do func() (more bool, err error)) error {
	for {
		if more, err := do(); err != nil || !more {
			return err
		}
		if err := r.pause(ctx); err != nil {
			return err
		}
	}
}

// try calls do for several ids at once. If that fails, it calls do for each id by
// itself, so that a damaged one does not hold up the others.
func (r *round) try(ctx context.Context, ids []int64, do func(context.Context, []int64) error) error {
	err := do(ctx, ids)
	if err == nil {
		return nil
	}
	if len(ids) < 2 || r.ends(ctx, err) != nil {
		return r.fail(ctx, err)
	}
	for i := range ids {
		if err := r.try(ctx, ids[i:i+1], do); err != nil {
			return err
		}
	}
	return nil
}

// fail records a failure, or returns the error that must end the round.
func (r *round) fail(ctx context.Context, err error) error {
	if end := r.ends(ctx, err); end != nil {
		return end
	}
	r.Failed++
	if len(r.Errors) < maxErrors {
		r.Errors = append(r.Errors, err)
	}
	return nil
}

// ends returns the error with which a failure ends the round, nil if it does not end
// it.
func (r *round) ends(ctx context.Context, err error) error {
	e := ckpt.AsError(err)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errPutOff), e.Code == ckpt.CodeBusy:
		return errPutOff
	case e.Outcome == ckpt.OutcomeUnknown:
		return err
	}
	return nil
}

func (r *round) count(removed []ckpt.Removal) {
	r.Removed += len(removed)
	if !r.DryRun {
		return
	}
	r.Would = append(r.Would, removed...)
	for _, c := range removed {
		r.planned[c.Checkpoint] = true
	}
}

func (r *round) slice() int { return cmp.Or(r.Slice, DefaultSlice) }

func (r *round) pause(ctx context.Context) error {
	return periodic.Wait(ctx, cmp.Or(r.Pause, DefaultPause))
}

// Worker removes what no save removes: checkpoints that have reached their age or that
// a changed policy no longer keeps, ended runs, what exceeds a budget, and old
// idempotency keys. Store and Guard must be set; the other fields may be zero.
type Worker struct {
	Store    store
	Guard    *Guard
	Log      *slog.Logger  // nil means none
	Interval time.Duration // between rounds, give or take a tenth; 0 means DefaultInterval
	Slice    int           // the most runs, and the most removals, in one transaction; 0 means DefaultSlice
	Pause    time.Duration // between transactions, so that saves go first; 0 means DefaultPause
	KeyKeep  time.Duration // how long idempotency keys are remembered; 0 means DefaultKeyKeep
	DryRun   bool          // remove nothing; Once returns what would be removed

	mu     sync.Mutex
	status ckpt.WorkerStatus
	unmet  int // the number that was last logged
}

// Result is what a round did.
type Result struct {
	Removed int            // checkpoints that were removed, or would be
	Would   []ckpt.Removal // in a dry run: the checkpoints that would be removed
	Dropped int            // ended runs that were removed
	Expired int            // idempotency keys that were removed
	Unmet   []int64        // agents still over budget though nothing more of theirs may be removed; 0 is the database
	Guarded bool           // the clock was not trusted: nothing was removed by age
	PutOff  bool           // the database was busy; the next round does the rest
	Failed  int            // parts of the round that failed; the others were done
	Errors  []error        // the first few of their errors
}

// The defaults of a Worker.
const (
	DefaultInterval = time.Minute
	DefaultSlice    = 50
	DefaultPause    = 10 * time.Millisecond
	DefaultKeyKeep  = 7 * ckpt.Day
)
