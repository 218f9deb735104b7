package retention

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/periodic"
)

// The defaults of a Worker.
const (
	DefaultInterval = time.Minute
	DefaultSlice    = 50
	DefaultPause    = 10 * time.Millisecond
	DefaultKeyKeep  = 7 * ckpt.Day
)

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

// Run makes a round at once and then one every interval, until ctx ends. It
// logs what went wrong and goes on: the next round tries again.
func (w *Worker) Run(ctx context.Context) error {
	return periodic.Run(ctx, func(ctx context.Context) time.Duration {
		result, err := w.Once(ctx)
		if ctx.Err() == nil {
			w.log(result, err)
		}
		return cmp.Or(w.Interval, DefaultInterval)
	})
}

// Once makes one round. Its error is what ended the round: ctx, or a store that
// no longer knows what is on disk. A busy store puts the rest off to the next
// round, and any other failure is counted in the Result and passed over.
func (w *Worker) Once(ctx context.Context) (Result, error) {
	r := &round{Worker: w}
	err := r.all(ctx)
	if !w.DryRun {
		w.note(r.Result, err)
	}
	return r.Result, err
}

// Status is how retention goes. LastRun is the last round that got through.
func (w *Worker) Status() ckpt.WorkerStatus {
	until := w.Guard.GuardedUntil()
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.status
	if !until.IsZero() {
		s.GuardedUntil = ckpt.At(until)
	}
	return s
}

func (w *Worker) note(r Result, err error) {
	now, _ := w.Guard.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status.Removed += int64(r.Removed)
	w.status.LastError = ""
	switch {
	case err != nil:
		w.status.LastError = ckpt.AsError(err).Message
	case r.PutOff:
		w.status.LastError = "put off, because the database was busy"
	case r.Failed > 0:
		w.status.LastError = ckpt.AsError(r.Errors[0]).Message
	}
	if err == nil && !r.PutOff {
		w.status.LastRun = ckpt.At(now)
	}
}

// log says what a round did, and nothing where that is nothing new.
func (w *Worker) log(r Result, err error) {
	log := w.Log
	if log == nil {
		return
	}
	switch {
	case err != nil:
		log.Error("retention stopped in the middle of a round", logErr, err)
	case r.Failed > 0:
		log.Warn("retention could not do everything", logFailed, r.Failed, logErr, r.Errors[0])
	}
	if r.Removed+r.Dropped+r.Expired > 0 {
		log.Info("retention", logRemoved, r.Removed, logDropped, r.Dropped, logExpired, r.Expired)
	}
	if n := len(r.Unmet); err == nil && !r.PutOff && n != w.unmet {
		log.Warn("budgets that cannot be met, because nothing more may go", logUnmet, n)
		w.unmet = n
	}
}
