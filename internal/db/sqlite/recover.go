package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// recover checks a database that the last process left in doubt: it runs SQLite's own check and
// copies the whole log into the file. If that fails, the store serves only reads. It never deletes
// or replaces anything.
func (e *Engine) recover(ctx context.Context) error {
	e.stopped = make(chan struct{})
	if _, err := os.Lstat(e.marker()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	e.log.Warn("the last process stopped because of a fault: checking the database before the first save")
	if why := e.doubt(ctx); why != "" {
		e.readOnly = why
		e.log.Error("serving reads only", "reason", why)
		return nil
	}
	e.log.Info("the database is intact")
	return os.Remove(e.marker())
}

// doubt says why the database must not be written, "" if it can be.
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
	err := backoff.Retry(func() error { // an auditor that reads now is no damage, so wait for it
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
