package sqlite

import (
	"errors"
	"runtime/debug"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// errAtCommit marks an error of COMMIT itself: what it would have saved may be
// there or not.
type errAtCommit struct{ error }

func (e errAtCommit) Unwrap() error { return e.error }

// commitError says what an error of COMMIT means. Where SQLite found no room
// or a lock, nothing was saved; after a fault of the disk nobody knows.
func commitError(err error) error {
	switch Classify(err) {
	case ClassFatal, ClassOperator:
		return &FatalError{errAtCommit{err}}
	}
	return err
}

// exhausted says that a transaction ended for want of a lock, which each of
// its operations alone would want too.
func exhausted(err error) bool { return ckpt.CodeOf(err) == ckpt.CodeBusy }

// stopped is the answer to everything after a fail-stop.
func stopped(cause error) *ckpt.Error {
	return &ckpt.Error{
		Code:       ckpt.CodeBusy,
		Message:    "the daemon has stopped saving because of a fault of the disk, of the database file or of its locks, and is being restarted: try again",
		RetryAfter: time.Second,
		Err:        cause,
	}
}

// explain turns what ended a transaction into the product's error, and stops
// the writer where what is on disk is not known any more.
func (w *writer) explain(err error) error {
	var refusal *ckpt.Error
	var fatal *FatalError
	switch {
	case errors.As(err, &refusal):
		return refusal
	case errors.As(err, &fatal):
		return w.stop(fatal)
	}
	switch Classify(err) {
	case ClassOnce:
		return &ckpt.Error{Code: ckpt.CodeBusy, Message: "the daemon had no memory for this just now: try again", RetryAfter: time.Second, Err: err}
	case ClassTransient:
		if fault := w.lockTrouble(err); fault != nil {
			return w.stop(fault)
		}
		return &ckpt.Error{Code: ckpt.CodeBusy, Message: w.engine.lockHolder().String() + " has held the database locked for too long: try again", RetryAfter: time.Second, Err: err}
	case ClassFull:
		return ckpt.Wrap(ckpt.CodeStorageFull, err, "there is no room for this on the disk or in the database: free some, delete checkpoints, or raise max_bytes; reads and deletes go on")
	case ClassFatal:
		return w.stop(&FatalError{err})
	case ClassOperator:
		return ckpt.Wrap(ckpt.CodeInternal, err, "the database cannot be written any more (SQLite result %d): check who owns the file and whether its file system is read-only", Code(err))
	case ClassClient:
		return ckpt.Wrap(ckpt.CodeConflict, err, "the request contradicts what is stored")
	}
	w.engine.log.Error("a write failed for a reason that it should not have", "error", err, "stack", string(debug.Stack()))
	return ckpt.Wrap(ckpt.CodeInternal, err, "writing failed inside the daemon; its log says how")
}

// stop is the fail-stop. What failed at COMMIT is of unknown outcome, what
// failed before it is not saved.
func (w *writer) stop(fatal *FatalError) error {
	w.mu.Lock()
	first := w.fatal == nil
	if first {
		w.fatal = fatal
	}
	w.mu.Unlock()
	if first {
		w.engine.failStop(fatal)
	}
	answer := stopped(fatal)
	if unknown(fatal) {
		answer.Outcome = ckpt.OutcomeUnknown
		answer.Message = "it is not known whether this was saved, because the disk or the database file failed in the middle: ask again with the same idempotency key"
	}
	return answer
}

func unknown(fatal *FatalError) bool {
	var at errAtCommit
	return errors.As(fatal.Err, &at)
}
