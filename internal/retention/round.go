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
	began   time.Time       // the time by which ages are judged; zero where it is not trusted
	planned map[string]bool // in a dry run: what is in Would
}

// errPutOff ends a round of which the next one does the rest.
var errPutOff = errors.New("put off")

// maxErrors is how many errors a Result carries.
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

// now is the time of the round while the clock is trusted. A jump in the middle
// of a round stops what goes by age with the next transaction.
func (r *round) now() time.Time {
	if r.began.IsZero() || r.Guard.Trusted().IsZero() {
		r.Guarded, r.began = true, time.Time{}
	}
	return r.began
}

// runs goes over the runs of which something may have to go, slice by slice.
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

// budget is Budget, after what a dry run has already said would go.
func (r *round) budget(runs []History, over int64) ([]Verdict, int64) {
	if len(r.planned) == 0 {
		return Budget(runs, over)
	}
	rest := make([]History, len(runs))
	for i, h := range runs {
		rest[i] = h
		rest[i].Checkpoints = nil
		for _, c := range h.Checkpoints {
			if r.planned[c.ID] {
				over -= c.StoredSize
				continue
			}
			rest[i].Checkpoints = append(rest[i].Checkpoints, c)
		}
	}
	return Budget(rest, over)
}

// keysAtOnce is how many idempotency keys go in the place of one checkpoint.
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

// judged notes that all ages were judged, where they were.
func (r *round) judged(ctx context.Context) error {
	if r.DryRun || r.Failed > 0 {
		return nil
	}
	return r.try(ctx, nil, func(ctx context.Context, _ []int64) error {
		return r.Store.Judged(ctx, r.now())
	})
}

// slices hands ids to do, a slice at a time, until there are no more.
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

// repeat calls do, a transaction, until there is no more to do.
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

// try does something for several ids at once, and where that fails for each by
// itself, so that one that is damaged does not hold up the others.
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

// fail takes a failure down, or answers with what the round ends.
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

// ends says with what a failure ends the round, nil where it does not.
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

// Worker removes what no save removes: what has reached its age, what a changed
// policy no longer keeps, ended runs, what is over a budget, old idempotency
// keys. Store and Guard must be set; the rest may be left zero.
type Worker struct {
	Store    store
	Guard    *Guard
	Log      *slog.Logger  // nil means none
	Interval time.Duration // between rounds, give or take a tenth; 0 means DefaultInterval
	Slice    int           // how many runs, and removals, a transaction has at most; 0 means DefaultSlice
	Pause    time.Duration // between transactions, so that saves go first; 0 means DefaultPause
	KeyKeep  time.Duration // how long idempotency keys are known; 0 means DefaultKeyKeep
	DryRun   bool          // remove nothing; Once answers what would go

	mu     sync.Mutex
	status ckpt.WorkerStatus
	unmet  int // as last logged
}

// Result is what a round did.
type Result struct {
	Removed int            // checkpoints that went, or would go
	Would   []ckpt.Removal // in a dry run: those that would go
	Dropped int            // ended runs that went
	Expired int            // idempotency keys that went
	Unmet   []int64        // agents still over budget though nothing more of theirs may go; 0 is the whole database
	Guarded bool           // the clock was not trusted: nothing went by age
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
