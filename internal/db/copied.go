package db

import (
	"context"
	"errors"
	"io/fs"
	"os"
)

// copiedHint is what may be behind a database that does not hold together.
const copiedHint = "if it was copied with cp or by a file backup while a daemon ran, its write-ahead log does not belong to it: " +
	"take a copy that ckptsidecar backup made"

// hasLog says, by its size alone, that something is in the write-ahead log.
func (s *Store) hasLog() bool {
	info, err := os.Lstat(s.opt.Path + "-wal")
	return err == nil && info.Size() > 0
}

// lookAtCopy checks a database with a log that no daemon has had in this place,
// as the missing file of the head says. SQLite puts the pages of a log over any
// database, so those of another moment make a mixture. That one is only read.
func (s *Store) lookAtCopy(ctx context.Context) error {
	_, err := os.Lstat(s.opt.Path + headSuffix)
	if !errors.Is(err, fs.ErrNotExist) || s.opt.restoring || s.health.readOnly != "" || !s.hasLog() {
		return nil
	}
	var result string
	err = s.ro.GetContext(ctx, &result, `PRAGMA quick_check(1)`)
	if code := sqliteCode(err); err != nil && code&0xff != 11 && code != 26 {
		return err
	}
	if err != nil {
		result = err.Error()
	}
	if result != "ok" {
		s.health.readOnly = "the database does not hold together: " + result + "; " + copiedHint
		s.log.Error("serving reads only", "reason", s.health.readOnly)
	}
	return nil
}
