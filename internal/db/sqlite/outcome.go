package sqlite

import (
	"errors"
	"runtime/debug"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// explain turns the error that ended a transaction into an error for the caller. It stops the
// writer if it is no longer known what is on disk.
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
		return &ckpt.Error{Code: ckpt.CodeBusy, Message: "the daemon is short of memory: try again", RetryAfter: time.Second, Err: err}
	case ClassTransient:
		if fault := w.lockTrouble(err); fault != nil {
			return w.stop(fault)
		}
		if w.lockSaid.may(time.Now()) {
			w.engine.log.Warn("a write was refused, because another program holds the database locked", "holder", w.engine.lockHolder().String(),
				"file", w.engine.opt.Path, "error", err)
		}
		return &ckpt.Error{Code: ckpt.CodeBusy,
			Message: w.engine.lockHolder().String() + " has held the database locked for too long: try again", RetryAfter: time.Second, Err: err}
	case ClassFull:
		return ckpt.Wrap(ckpt.CodeStorageFull, err,
			"the disk or the database has no room for this: free space, delete checkpoints, or raise limits.max_database; reads and deletes still work")
	case ClassFatal:
		return w.stop(&FatalError{err})
	case ClassOperator:
		return ckpt.Wrap(ckpt.CodeInternal, err,
			"the database cannot be written any more (SQLite result %d): check who owns the file and whether its file system is read-only", Code(err))
	case ClassClient:
		return ckpt.Wrap(ckpt.CodeConflict, err, "the request conflicts with the stored data")
	}
	w.engine.log.Error("a write failed unexpectedly", "error", err, "stack", string(debug.Stack()))
	return ckpt.Wrap(ckpt.CodeInternal, err, "writing failed inside the daemon: read the daemon's log")
}
