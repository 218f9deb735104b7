package db

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/db/usage"
)

// keySlice is how many keys one search for old keys looks at.
const keySlice = 50_000

// keyPlace is a place in the order of keys.
type keyPlace struct {
	Key   any   `db:"key"` // text, or the bytes of a UUID
	Agent int64 `db:"agent_id"`
}

// keyTable is a table of keys and how to ask it.
type keyTable struct {
	seen   func(*Store) *atomic.Pointer[keyPlace] // where the last call stopped
	from   string                                 // the table, with the table that gives the age of a key
	key    string
	old    string // the condition for keys older than ?
	delete string // deletes a key, and returns the bytes that it used
}

// keyTables are all tables that keep keys.
var keyTables = []keyTable{
	{func(s *Store) *atomic.Pointer[keyPlace] { return &s.keysSeen }, `idempotency k`, `k.key`,
		`k.created_at < ?`,
		`DELETE FROM idempotency WHERE key = ? AND agent_id = ? RETURNING ` + usage.OfKey},
	{func(s *Store) *atomic.Pointer[keyPlace] { return &s.idsSeen }, `ids k JOIN acts a ON a.n = k.n`, `k.id`, `a.at < ?`,
		`DELETE FROM ids WHERE id = ? AND agent_id = ? RETURNING ` + usage.OfID},
}

// Expire removes keys that were first used before a time, at most limit of each kind, and returns
// how many it removed. It searches on a read connection, so that a long table does not block the
// writer. In a long table it searches only parts: the beginning, which has the oldest of the
// clients' own ids, and the part after the place where the last call stopped.
func (s *Store) Expire(ctx context.Context, before time.Time, limit int) (n int, err error) {
	for i := range keyTables {
		gone, err := s.expire(ctx, &keyTables[i], before, limit)
		n += gone
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func (s *Store) expire(ctx context.Context, table *keyTable, before time.Time, limit int) (n int, err error) {
	old, next, err := s.oldKeys(ctx, table, keyPlace{Key: ""}, before, limit)
	last := table.seen(s)
	if seen := last.Load(); err == nil && len(old) == 0 && seen != nil {
		old, next, err = s.oldKeys(ctx, table, *seen, before, limit)
	}
	last.Store(&next)
	if err != nil || len(old) == 0 {
		return 0, sqlite.ReadError(err)
	}
	err = s.Submit(&ledger.Op{Owner: ledger.Daemon, Claim: sqlite.Frees, Do: func(tx *ledger.Tx) error {
		n = 0
		tx.Touches()
		owners := map[int64]string{}
		for _, key := range old {
			var bytes int64
			gone, err := tx.Change(&bytes, table.delete, key.Key, key.Agent)
			if err != nil {
				return err
			}
			if !gone {
				continue
			}
			n++
			owner, known := owners[key.Agent]
			if !known {
				if _, err := tx.Get(&owner, `SELECT owner FROM agents WHERE id = ?`, key.Agent); err != nil {
					return err
				}
				owners[key.Agent] = owner
			}
			if owner != "" {
				tx.Tally.Add(owner, -bytes)
			}
		}
		return nil
	}})
	return n, err
}

// oldKeys looks at a part of the keys after a place. It returns the old keys and the next place,
// which is the beginning if it reached the end.
func (s *Store) oldKeys(ctx context.Context, table *keyTable, after keyPlace, before time.Time,
	limit int) (old []keyPlace, next keyPlace, err error) {
	ask := `SELECT ` + table.key + ` AS key, k.agent_id FROM ` + table.from + ` WHERE (` + table.key + `, k.agent_id) > (?, ?)`
	order := ` ORDER BY ` + table.key + `, k.agent_id LIMIT 0 + ?`
	err = s.RO.GetContext(ctx, &next, ask+order+` OFFSET ?`, after.Key, after.Agent, 1, keySlice-1)
	switch {
	case ledger.IsNoRows(err):
		err = s.RO.SelectContext(ctx, &old, ask+` AND `+table.old+order, after.Key, after.Agent, before.UnixMilli(), limit)
		next = keyPlace{Key: ""}
	case err == nil:
		err = s.RO.SelectContext(ctx, &old, ask+` AND (`+table.key+`, k.agent_id) <= (?, ?) AND `+table.old+order,
			after.Key, after.Agent, next.Key, next.Agent, before.UnixMilli(), limit)
	}
	if len(old) == limit { // there may be more old keys in this part
		next = after
	}
	return old, next, err
}
