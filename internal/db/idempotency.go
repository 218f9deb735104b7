package db

import (
	"context"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/db/usage"
)

// keySlice is how many keys are looked at at once for old ones.
const keySlice = 50_000

// keyPlace is a place in the order of keys.
type keyPlace struct {
	Key   string `db:"key"`
	Agent int64  `db:"agent_id"`
}

// Expire forgets keys that were first used before a time, at most limit, and
// answers how many went. They are looked for on a read connection, so that a
// long table does not hold the writer, and only in parts of a long one: at its
// beginning, where the oldest of the clients' own ids stand, and onwards from
// where the last call stopped.
func (s *Store) Expire(ctx context.Context, before time.Time, limit int) (n int, err error) {
	old, next, err := s.oldKeys(ctx, keyPlace{}, before, limit)
	if seen := s.keysSeen.Load(); err == nil && len(old) == 0 && seen != nil {
		old, next, err = s.oldKeys(ctx, *seen, before, limit)
	}
	s.keysSeen.Store(&next)
	if err != nil || len(old) == 0 {
		return 0, sqlite.ReadError(err)
	}
	err = s.Submit(&ledger.Op{Owner: ledger.Daemon, Claim: sqlite.Frees, Do: func(tx *ledger.Tx) error {
		n = 0
		owners := map[int64]string{}
		for _, key := range old {
			var bytes int64
			gone, err := tx.Get(&bytes, deleteKey, key.Key, key.Agent)
			if err != nil {
				return err
			}
			if !gone {
				continue
			}
			tx.Wrote = true
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

// deleteKey deletes a key and answers what it took.
var deleteKey = `DELETE FROM idempotency WHERE key = ? AND agent_id = ? RETURNING ` + usage.OfKey

// oldKeys looks at a part of the keys, after a place, and answers the next one:
// the beginning again where the end was reached.
func (s *Store) oldKeys(ctx context.Context, after keyPlace, before time.Time, limit int) (old []keyPlace, next keyPlace, err error) {
	err = s.RO.GetContext(ctx, &next, `SELECT key, agent_id FROM idempotency WHERE (key, agent_id) > (?, ?) ORDER BY key, agent_id LIMIT 1 OFFSET ?`,
		after.Key, after.Agent, keySlice-1)
	switch {
	case ledger.IsNoRows(err):
		err = s.RO.SelectContext(ctx, &old, `SELECT key, agent_id FROM idempotency WHERE (key, agent_id) > (?, ?) AND created_at < ? ORDER BY key, agent_id LIMIT ?`,
			after.Key, after.Agent, ckpt.At(before), limit)
		next = keyPlace{}
	case err == nil:
		err = s.RO.SelectContext(ctx, &old, `SELECT key, agent_id FROM idempotency WHERE (key, agent_id) > (?, ?) AND (key, agent_id) <= (?, ?) AND created_at < ?
			ORDER BY key, agent_id LIMIT ?`, after.Key, after.Agent, next.Key, next.Agent, ckpt.At(before), limit)
	}
	if len(old) == limit { // there may be more of them here
		next = after
	}
	return old, next, err
}
