package db

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// replyRow is the first reply to a key.
type replyRow struct {
	Fingerprint string `db:"fingerprint"`
	Reply       string `db:"reply"`
}

// fingerprint tells one request from another under the same key.
func fingerprint(request any) (string, error) {
	b, err := json.Marshal(request)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// replayed reads the first reply to a key into reply and answers whether there
// was one. agentID is 0 for requests that name no agent.
func (tx *tx) replayed(agentID int64, key, print string, reply any) (bool, error) {
	if key == "" {
		return false, nil
	}
	var row replyRow
	found, err := tx.get(&row, `SELECT fingerprint, reply FROM idempotency WHERE key = ? AND agent_id = ?`, key, agentID)
	if err != nil || !found {
		return false, err
	}
	if row.Fingerprint != print {
		return false, ckpt.Errorf(ckpt.CodeIdempotencyMismatch, "this key or id came before with another request: use a new one for each new request")
	}
	return true, json.Unmarshal([]byte(row.Reply), reply)
}

// remember keeps the reply to a key.
func (tx *tx) remember(agentID int64, key, print string, reply any) error {
	if key == "" {
		return nil
	}
	b, err := json.Marshal(reply)
	if err != nil {
		return err
	}
	return tx.rememberText(agentID, key, print, b)
}

// rememberText is remember of a reply that is written already.
func (tx *tx) rememberText(agentID int64, key, print string, reply []byte) error {
	if key == "" {
		return nil
	}
	return tx.exec(insertKey, key, agentID, print, string(reply), tx.now)
}

const insertKey = `INSERT INTO idempotency (key, agent_id, fingerprint, reply, created_at) VALUES (?, ?, ?, ?, ?)`

// rememberNew is remember where the key is most likely new, and answers false
// where it is not: then nothing was changed. It spares a save the question.
func (tx *tx) rememberNew(agentID int64, key, print string, reply []byte) (bool, error) {
	if tx.Barred { // whoever asks again has an answer all the same
		return false, nil
	}
	wrote := tx.Wrote
	err := tx.rememberText(agentID, key, print, reply)
	if isTaken(err) {
		tx.Wrote = wrote // the statement alone was undone
		return false, nil
	}
	return true, err
}

// isTaken says that a row was not inserted because its key is there.
func isTaken(err error) bool {
	switch sqlite.Code(err) {
	case 1555, 2067: // CONSTRAINT_PRIMARYKEY, CONSTRAINT_UNIQUE
		return true
	}
	return false
}

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
	err = s.write(&op{owner: daemon, claim: sqlite.Frees, apply: func(tx *tx) error {
		n = 0
		owners := map[int64]string{}
		for _, key := range old {
			var bytes int64
			gone, err := tx.get(&bytes, deleteKey, key.Key, key.Agent)
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
				if _, err := tx.get(&owner, `SELECT owner FROM agents WHERE id = ?`, key.Agent); err != nil {
					return err
				}
				owners[key.Agent] = owner
			}
			if owner != "" {
				s.countOwner(tx, owner, -bytes)
			}
		}
		return nil
	}})
	return n, err
}

// deleteKey deletes a key and answers what it took.
var deleteKey = `DELETE FROM idempotency WHERE key = ? AND agent_id = ? RETURNING ` + ofKey

// oldKeys looks at a part of the keys, after a place, and answers the next one:
// the beginning again where the end was reached.
func (s *Store) oldKeys(ctx context.Context, after keyPlace, before time.Time, limit int) (old []keyPlace, next keyPlace, err error) {
	err = s.ro.GetContext(ctx, &next, `SELECT key, agent_id FROM idempotency WHERE (key, agent_id) > (?, ?) ORDER BY key, agent_id LIMIT 1 OFFSET ?`,
		after.Key, after.Agent, keySlice-1)
	switch {
	case isNoRows(err):
		err = s.ro.SelectContext(ctx, &old, `SELECT key, agent_id FROM idempotency WHERE (key, agent_id) > (?, ?) AND created_at < ? ORDER BY key, agent_id LIMIT ?`,
			after.Key, after.Agent, ckpt.At(before), limit)
		next = keyPlace{}
	case err == nil:
		err = s.ro.SelectContext(ctx, &old, `SELECT key, agent_id FROM idempotency WHERE (key, agent_id) > (?, ?) AND (key, agent_id) <= (?, ?) AND created_at < ?
			ORDER BY key, agent_id LIMIT ?`, after.Key, after.Agent, next.Key, next.Agent, ckpt.At(before), limit)
	}
	if len(old) == limit { // there may be more of them here
		next = after
	}
	return old, next, err
}
