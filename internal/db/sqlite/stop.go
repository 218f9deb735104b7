package sqlite

import (
	"encoding/json"
	"errors"
	"os"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"

	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

// failStop announces once that nothing is acknowledged any more.
func (e *Engine) failStop(fatal *FatalError) {
	if isLockFault(fatal) {
		e.log.Error("stopped saving: the writer is stuck; a new process must take over", "error", fatal.Err)
		close(e.stopped)
		return
	}
	e.log.Error("stopped saving: the data on disk is no longer certain; a new process must check it", "error", fatal.Err)
	note, _ := json.Marshal(map[string]string{"at": ckpt.At(e.opt.Now()).String(), "error": fatal.Err.Error()})
	if err := e.mark(note); err != nil {
		e.log.Error("the file that records the fault could not be written", "file", e.marker(), "error", err)
	}
	close(e.stopped)
}

// mark writes the marker. It writes in place and does not flush: the disk may be full, or may fail to flush.
func (e *Engine) mark(note []byte) error {
	f, err := osfile.OpenPlain(e.marker(), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(note)
	return errors.Join(err, f.Close())
}

// stop is the fail-stop. A failure at COMMIT has an unknown outcome; a failure before it saved
// nothing.
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
		answer.Message = "the write may or may not be saved, because the disk or the database file failed in the " +
			"middle: ask again with the same idempotency key"
	}
	return answer
}

func unknown(fatal *FatalError) bool {
	var at errAtCommit
	return errors.As(fatal.Err, &at)
}

// stopped is the error for every call after a fail-stop.
func stopped(cause error) *ckpt.Error {
	return &ckpt.Error{
		Code: ckpt.CodeBusy,
		Message: "the daemon has stopped saving because of a fault of the disk, of the database file " +
			"or of its locks, and is being restarted: try again",
		RetryAfter: time.Second,
		Err:        cause,
	}
}

// exhausted says that a transaction ended because it did not get a lock. Each of its operations
// would need that lock too.
func exhausted(err error) bool { return ckpt.CodeOf(err) == ckpt.CodeBusy }
