package retention

import (
	"cmp"
	"context"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/periodic"
)

// Run makes a round at once and then one every interval, until ctx ends. It logs what
// went wrong and goes on: the next round tries again.
func (w *Worker) Run(ctx context.Context) error {
	return periodic.Run(ctx, func(ctx context.Context) time.Duration {
		result, err := w.Once(ctx)
		if ctx.Err() == nil {
			w.log(result, err)
		}
		return cmp.Or(w.Interval, DefaultInterval)
	})
}

// Once makes one round. It returns the error that ended the round: ctx's, or that of a
// store that no longer knows what is on disk. If the store is busy, the next round does
// the rest. Any other failure is counted in the Result, and the round goes on.
func (w *Worker) Once(ctx context.Context) (Result, error) {
	r := &round{Worker: w}
	err := r.all(ctx)
	if !w.DryRun {
		w.note(r.Result, err)
	}
	return r.Result, err
}

// Status returns the state of retention. LastRun is the last round that was completed.
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
		w.status.LastError = "postponed, because the database was busy"
	case r.Failed > 0:
		w.status.LastError = ckpt.AsError(r.Errors[0]).Message
	}
	if err == nil && !r.PutOff {
		w.status.LastRun = ckpt.At(now)
	}
}

// log logs what a round did, and nothing if there is nothing new.
func (w *Worker) log(r Result, err error) {
	log := w.Log
	if log == nil {
		return
	}
	switch {
	case err != nil:
		log.Error("retention stopped before its round was done", logErr, err)
	case r.Failed > 0:
		log.Warn("retention could not finish its work", logFailed, r.Failed, logErr, r.Errors[0])
	}
	if r.Removed+r.Dropped+r.Expired > 0 {
		log.Info("retention", logRemoved, r.Removed, logDropped, r.Dropped, logExpired, r.Expired)
	}
	if n := len(r.Unmet); err == nil && !r.PutOff && n != w.unmet {
		log.Warn("some budgets cannot be met, because nothing more may be removed", logUnmet, n)
		w.unmet = n
	}
}
