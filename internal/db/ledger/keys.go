package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// replyRow is the first reply to a key.
type replyRow struct {
	Fingerprint string `db:"fingerprint"`
	Reply       string `db:"reply"`
}

// Fingerprint tells one request from another under the same key.
func Fingerprint(request any) (string, error) {
	b, err := json.Marshal(request)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// Replayed reads the first reply to a key into reply and answers whether there
// was one. agentID is 0 for requests that name no agent.
func (tx *Tx) Replayed(agentID int64, key, print string, reply any) (bool, error) {
	if key == "" {
		return false, nil
	}
	var row replyRow
	found, err := tx.Get(&row, `SELECT fingerprint, reply FROM idempotency WHERE key = ? AND agent_id = ?`, key, agentID)
	if err != nil || !found {
		return false, err
	}
	if row.Fingerprint != print {
		return false, ckpt.Errorf(ckpt.CodeIdempotencyMismatch, "this key or id came before with another request: use a new one for each new request")
	}
	return true, json.Unmarshal([]byte(row.Reply), reply)
}

// Remember keeps the reply to a key.
func (tx *Tx) Remember(agentID int64, key, print string, reply any) error {
	if key == "" {
		return nil
	}
	b, err := json.Marshal(reply)
	if err != nil {
		return err
	}
	return tx.RememberText(agentID, key, print, b)
}

// RememberText is remember of a reply that is written already.
func (tx *Tx) RememberText(agentID int64, key, print string, reply []byte) error {
	if key == "" {
		return nil
	}
	return tx.Exec(insertKey, key, agentID, print, string(reply), tx.Now)
}

const insertKey = `INSERT INTO idempotency (key, agent_id, fingerprint, reply, created_at) VALUES (?, ?, ?, ?, ?)`

// RememberNew is remember where the key is most likely new, and answers false
// where it is not: then nothing was changed. It spares a save the question.
func (tx *Tx) RememberNew(agentID int64, key, print string, reply []byte) (bool, error) {
	if tx.Barred { // whoever asks again has an answer all the same
		return false, nil
	}
	wrote := tx.Wrote
	err := tx.RememberText(agentID, key, print, reply)
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

// SavedReply is what of a save's answer does not follow from the request. It
// is kept with the key, and a repeated request gives the rest again.
type SavedReply struct {
	ID         string    `json:"id"`
	Seq        int64     `json:"seq"`
	Parent     ckpt.Ref  `json:"parent"`
	CreatedAt  ckpt.Time `json:"created_at"`
	StoredSize int64     `json:"stored_size"`
	Suspect    bool      `json:"suspect,omitempty"`
	Pruned     []string  `json:"pruned"`
}
