package db

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
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
	found, err := tx.get(&row, `SELECT fingerprint, reply FROM idempotency WHERE agent_id = ? AND key = ?`, agentID, key)
	if err != nil || !found {
		return false, err
	}
	if row.Fingerprint != print {
		return false, ckpt.Errorf(ckpt.CodeIdempotencyMismatch, "this key or id came before with another request: use a new one for each new request")
	}
	return true, json.Unmarshal([]byte(row.Reply), reply)
}

// remember keeps the reply to a key. It must come after the audit row that
// records the request, whose number it takes.
func (tx *tx) remember(agentID int64, key, print string, reply any) error {
	if key == "" {
		return nil
	}
	b, err := json.Marshal(reply)
	if err != nil {
		return err
	}
	return tx.exec(`INSERT INTO idempotency (n, agent_id, key, fingerprint, reply, created_at) VALUES (?, ?, ?, ?, ?, ?)`,
		tx.head.n, agentID, key, print, string(b), tx.now)
}

// Expire forgets the keys that were first used before a time, the oldest first
// and at most limit, and answers how many went. They are looked for on a read
// connection, so that a long table does not hold the writer.
func (s *Store) Expire(ctx context.Context, before time.Time, limit int) (n int, err error) {
	var old []int64
	err = s.ro.SelectContext(ctx, &old, `SELECT n FROM idempotency WHERE created_at < ? ORDER BY n LIMIT ?`, ckpt.At(before), limit)
	if err != nil || len(old) == 0 {
		return 0, readError(err)
	}
	list, err := json.Marshal(old)
	if err != nil {
		return 0, err
	}
	err = s.write(&op{owner: daemon, apply: func(tx *tx) error {
		gone, err := tx.execCount(`DELETE FROM idempotency WHERE n IN (SELECT value FROM json_each(?))`, string(list))
		n = int(gone)
		return err
	}})
	return n, err
}
