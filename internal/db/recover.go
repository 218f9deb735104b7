package db

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

// health is whether the store acknowledges.
type health struct {
	failed   chan struct{} // closed at a fail-stop
	readOnly string        // why only reads are served; "" where writes are too
}

// marker is the file beside the database that tells the next process that this
// one ended in a fault.
func (s *Store) marker() string { return s.opt.Path + ".failed" }

// failStop tells everybody once that nothing is acknowledged any more.
func (s *Store) failStop(fatal *FatalError) {
	if isLockFault(fatal) {
		s.log.Error("stopped saving: the writer does not get on; a fresh process must take over", "error", fatal.Err)
		close(s.health.failed)
		return
	}
	s.log.Error("stopped saving: what is on disk is not certain any more; a fresh process must check it", "error", fatal.Err)
	note, _ := json.Marshal(map[string]string{"at": ckpt.At(s.opt.Now()).String(), "error": fatal.Err.Error()})
	if err := s.mark(note); err != nil {
		s.log.Error("the marker of the fault could not be written", "file", s.marker(), "error", err)
	}
	close(s.health.failed)
}

// mark leaves the marker. It writes in place and does not flush: the disk may be full, or may not flush any more.
func (s *Store) mark(note []byte) error {
	f, err := osfile.OpenPlain(s.marker(), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(note)
	return errors.Join(err, f.Close())
}

// Failed is closed when the store has stopped acknowledging; the process
// should end, and a fresh one decide.
func (s *Store) Failed() <-chan struct{} { return s.health.failed }

// Fault is why the store has stopped acknowledging, nil while it has not.
func (s *Store) Fault() error { return s.writer.failed() }

// recover checks a database that the last process left in doubt: SQLite's own
// check, the log written into the file whole. Where that does not succeed the
// store serves reads only; it never deletes or replaces anything.
func (s *Store) recover(ctx context.Context) error {
	s.health.failed = make(chan struct{})
	if _, err := os.Lstat(s.marker()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	s.log.Warn("the last process stopped because of a fault: checking the database before anything is saved")
	if why := s.doubt(ctx); why != "" {
		s.health.readOnly = why
		s.log.Error("serving reads only", "reason", why)
		return nil
	}
	s.log.Info("the database is sound")
	return os.Remove(s.marker())
}

// doubt answers why the database must not be written, "" where it may be.
func (s *Store) doubt(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	var result string
	if err := s.rw.GetContext(ctx, &result, `PRAGMA integrity_check(1)`); err != nil {
		return "after a fault the integrity check could not be run: " + err.Error()
	}
	if result != "ok" {
		return "after a fault the integrity check found damage: " + result + "; run ckptsidecar verify, then restore a backup"
	}
	err := backoff.Retry(func() error { // an auditor who reads just now is no damage: he is waited for
		var busy, log, done int
		err := s.rw.QueryRowContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &log, &done)
		if err == nil && busy != 0 {
			return errors.New("another program reads or writes the database")
		}
		if noRoom(err) && s.letGo() {
			return err
		}
		if err != nil && classify(err) != classTransient {
			return backoff.Permanent(err)
		}
		return err
	}, backoff.WithContext(patience(s.opt.WriteTimeout), ctx))
	if err != nil {
		return fmt.Sprintf("after a fault the write-ahead log could not be written into the database: %v", err)
	}
	return ""
}
