package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/cenkalti/backoff/v4"
	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

// marker is the file beside the database that tells the next process that this
// one ended in a fault.
func (e *Engine) marker() string { return e.opt.Path + ".failed" }

// failStop tells everybody once that nothing is acknowledged any more.
func (e *Engine) failStop(fatal *FatalError) {
	if isLockFault(fatal) {
		e.log.Error("stopped saving: the writer does not get on; a fresh process must take over", "error", fatal.Err)
		close(e.stopped)
		return
	}
	e.log.Error("stopped saving: what is on disk is not certain any more; a fresh process must check it", "error", fatal.Err)
	note, _ := json.Marshal(map[string]string{"at": ckpt.At(e.opt.Now()).String(), "error": fatal.Err.Error()})
	if err := e.mark(note); err != nil {
		e.log.Error("the marker of the fault could not be written", "file", e.marker(), "error", err)
	}
	close(e.stopped)
}

// mark leaves the marker. It writes in place and does not flush: the disk may be full, or may not flush any more.
func (e *Engine) mark(note []byte) error {
	f, err := osfile.OpenPlain(e.marker(), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(note)
	return errors.Join(err, f.Close())
}

// Failed is closed when the store has stopped acknowledging; the process
// should end, and a fresh one decide.
func (e *Engine) Failed() <-chan struct{} { return e.stopped }

// ReadOnly is why only reads are served, "" where writes are too.
func (e *Engine) ReadOnly() string { return e.readOnly }

// Fault is why the store has stopped acknowledging, nil while it has not.
func (e *Engine) Fault() error { return e.writer.failed() }

// recover checks a database that the last process left in doubt: SQLite's own
// check, the log written into the file whole. Where that does not succeed the
// store serves reads only; it never deletes or replaces anything.
func (e *Engine) recover(ctx context.Context) error {
	e.stopped = make(chan struct{})
	if _, err := os.Lstat(e.marker()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	e.log.Warn("the last process stopped because of a fault: checking the database before anything is saved")
	if why := e.doubt(ctx); why != "" {
		e.readOnly = why
		e.log.Error("serving reads only", "reason", why)
		return nil
	}
	e.log.Info("the database is sound")
	return os.Remove(e.marker())
}

// doubt answers why the database must not be written, "" where it may be.
func (e *Engine) doubt(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	var result string
	if err := e.rw.GetContext(ctx, &result, `PRAGMA integrity_check(1)`); err != nil {
		return "after a fault the integrity check could not be run: " + err.Error()
	}
	if result != "ok" {
		return "after a fault the integrity check found damage: " + result + "; run ckptsidecar verify, then restore a backup"
	}
	err := backoff.Retry(func() error { // an auditor who reads just now is no damage: he is waited for
		var busy, log, done int
		err := e.rw.QueryRowContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &log, &done)
		if err == nil && busy != 0 {
			return errors.New("another program reads or writes the database")
		}
		if noRoom(err) && e.letGo() {
			return err
		}
		if err != nil && Classify(err) != ClassTransient {
			return backoff.Permanent(err)
		}
		return err
	}, backoff.WithContext(patience(e.opt.WriteTimeout), ctx))
	if err != nil {
		return fmt.Sprintf("after a fault the write-ahead log could not be written into the database: %v", err)
	}
	return ""
}
