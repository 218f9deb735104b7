package daemon

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/audit"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

// VerifyReport is the result of VerifyAgainst.
type VerifyReport = audit.VerifyReport

// Head is an earlier end of the audit log, as the daemon logged it.
type Head = audit.Head

// ParseHead reads a head: NUMBER:HASH, or a line of the daemon's log.
func ParseHead(line string) (Head, bool) { return audit.ParseHead(line) }

// ReadHeads finds the heads in a daemon's log.
func ReadHeads(log io.Reader) ([]Head, error) { return audit.ReadHeads(log) }

// VerifyAgainst checks a whole database without changing it, and that the audit log still has these
// heads, which may be nil. A daemon can run at the same time.
func VerifyAgainst(ctx context.Context, path string, heads []Head, progress func(done, total int64)) (*VerifyReport, error) {
	return audit.VerifyAgainst(ctx, path, heads, progress)
}

// VerifyArchives checks the archives of a database's audit log in a folder.
func VerifyArchives(ctx context.Context, path, folder string, heads []Head, progress func(done, total int64)) ([]*VerifyReport, error) {
	return audit.VerifyArchives(ctx, path, folder, heads, progress)
}

// Backup copies a database. A daemon can run at the same time. The copy gets its name after it has
// been verified.
func Backup(ctx context.Context, path, out string, progress func(done, total int64)) error {
	return db.Backup(ctx, path, out, progress)
}

// RemoveUnfinished removes what a process that was killed during a backup has left in the backup's
// folder.
func RemoveUnfinished(folder string, pid int) error { return db.RemoveUnfinished(folder, pid) }

// DamagedError describes what is wrong with a file that should be a backup.
type DamagedError = db.DamagedError

// Restored is the result of RestoreBackup.
type Restored = db.Restored

// ErrRunning means that a daemon is using the database.
var ErrRunning = db.ErrLocked

// RestoreBackup puts a verified backup in the place of the configured database. No daemon may be
// using the database. It calls tell with the files that were kept.
func RestoreBackup(ctx context.Context, backup string, c Config, version string, progress func(done, total int64), tell func(*Restored)) error {
	_, err := db.RestoreBackup(ctx, backup, db.Options{
		Path: c.Database, Mode: os.FileMode(c.DatabaseMode), Retention: retention.Plan, Version: version,
		WriteTimeout: time.Duration(c.WriteTimeout),
	}, progress, tell)
	return err
}

// RunsNotEnded counts the runs of the configured database that had neither completed nor failed when it was written.
func RunsNotEnded(ctx context.Context, c Config) (int64, error) {
	return db.RunsNotEnded(ctx, c.Database)
}

// SQLiteVersion returns the version of the SQLite that is built in.
func SQLiteVersion() string { return db.SQLiteVersion() }

// Unreachable reports whether an error means that no daemon could be reached. A connection refused
// because an untrusted program listens does not count: that does not go away by itself.
func Unreachable(err error) bool {
	var dial *endpoint.DialError
	return errors.As(err, &dial) && !dial.Stranger()
}

// Absent reports whether an error means that no daemon listens, so that it helps to start one.
func Absent(err error) bool {
	var dial *endpoint.DialError
	return errors.As(err, &dial) && dial.Nobody()
}

// Endpoints returns where the user's own daemon and the system's listen by default. Both are the same
// where there is one place for all; own is "" if no folder for it is known.
func Endpoints() (own, system string) { return endpoint.Default(false), endpoint.Default(true) }

// OwnDatabase returns the database of the user's own daemon, "" if there is none in the usual place.
func OwnDatabase() string { return endpoint.OwnDatabase() }

// CheckIdentityMap returns the reason why users cannot be told apart here, or nil if they can.
func CheckIdentityMap() error { return endpoint.CheckIdentityMap() }
