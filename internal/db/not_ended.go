package db

import (
	"context"

	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// RunsNotEnded counts the runs of a database file that had neither completed nor failed when it was written. A daemon may use
// the database.
func RunsNotEnded(ctx context.Context, path string) (n int64, err error) {
	db, done, err := sqlite.OpenBeside(path, 1)
	if err != nil {
		return 0, err
	}
	defer done()
	err = db.GetContext(ctx, &n, `SELECT count(*) FROM runs WHERE status NOT IN ('completed', 'failed')`)
	return n, err
}
