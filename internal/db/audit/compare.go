package audit

import (
	"context"
	"encoding/json"

	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/jmoiron/sqlx"
)

// Hashes reads the hashes of rows of an audit log while a daemon may use it.
type Hashes struct {
	Database string // the id under which the database belongs to a fleet

	db   *sqlx.DB
	done func()
}

// OpenHashes opens a database to read its hashes. The caller must call Close.
func OpenHashes(ctx context.Context, path string) (*Hashes, error) {
	db, done, err := sqlite.OpenBeside(path, 1)
	if err != nil {
		return nil, err
	}
	h := &Hashes{db: db, done: done}
	if err := db.GetContext(ctx, &h.Database, `SELECT value FROM meta WHERE key = 'database_id'`); err != nil {
		done()
		return nil, sqlite.ReadError(err)
	}
	return h, nil
}

// Close closes the database.
func (h *Hashes) Close() { h.done() }

// Count returns how many of the rows from a number to another one are in the database.
func (h *Hashes) Count(ctx context.Context, from, to int64) (n int64, err error) {
	err = h.db.GetContext(ctx, &n, `SELECT count(*) FROM acts WHERE n BETWEEN ?1 AND ?2`, from, to)
	return n, sqlite.ReadError(err)
}

// Of reads the hashes of some rows. It leaves out rows that are archived or do not exist.
func (h *Hashes) Of(ctx context.Context, rows []int64) (map[int64]string, error) {
	list, err := json.Marshal(rows)
	if err != nil {
		return nil, err
	}
	var found []struct {
		N    int64  `db:"n"`
		Hash string `db:"hash"`
	}
	err = h.db.SelectContext(ctx, &found, `SELECT e.value AS n, coalesce(`+ledger.HashOf(`e.value`)+`, '') AS hash FROM json_each(?) e`, string(list))
	if err != nil {
		return nil, sqlite.ReadError(err)
	}
	all := make(map[int64]string, len(found))
	for _, f := range found {
		if f.Hash != "" {
			all[f.N] = f.Hash
		}
	}
	return all, nil
}
