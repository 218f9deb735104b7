package daemon

import (
	"context"
	"errors"

	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
)

// VerifyReport is what Verify found.
type VerifyReport = db.VerifyReport

// Verify checks a whole database without changing it, also while a daemon runs.
func Verify(ctx context.Context, path string, progress func(done, total int64)) (*VerifyReport, error) {
	return db.Verify(ctx, path, progress)
}

// Backup copies a database, also while a daemon runs. The copy gets its name
// when it has been verified.
func Backup(ctx context.Context, path, out string, progress func(done, total int64)) error {
	return db.Backup(ctx, path, out, progress)
}

// SQLiteVersion is the version of the SQLite that is built in.
func SQLiteVersion() string { return db.SQLiteVersion() }

// Unreachable says whether an error means that no daemon could be reached.
func Unreachable(err error) bool {
	var dial *endpoint.DialError
	return errors.As(err, &dial)
}

// CheckIdentityMap says why users could not be told apart here, nil where they can.
func CheckIdentityMap() error { return endpoint.CheckIdentityMap() }
