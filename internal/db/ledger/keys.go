package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// replyRow is the first reply to a key.
type replyRow struct {
	Fingerprint []byte `db:"fingerprint"`
	Reply       string `db:"reply"`
}

// Fingerprint distinguishes requests under the same key.
func Fingerprint(request any) (string, error) {
	b, err := json.Marshal(request)
	if err != nil {
		return "", err
	}
	return FingerprintOf(b), nil
}

// FingerprintOf is the fingerprint of a request that is JSON already.
func FingerprintOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Replayed reads the first reply to a key into reply and says whether there was one. agentID is 0
// for requests that name no agent.
func (tx *Tx) Replayed(agentID int64, key, print string, reply any) (bool, error) {
	if key == "" {
		return false, nil
	}
	short, err := shortPrint(print)
	if err != nil {
		return false, err
	}
	var row replyRow
	found, err := tx.Get(&row, `SELECT fingerprint, reply FROM idempotency WHERE key = ? AND agent_id = ?`, keyCell(key), agentID)
	if err != nil || !found {
		return false, err
	}
	if !bytes.Equal(row.Fingerprint, short) {
		return false, errOtherRequest()
	}
	return true, json.Unmarshal([]byte(row.Reply), reply)
}

func errOtherRequest() error {
	return ckpt.Errorf(ckpt.CodeIdempotencyMismatch, "this key or id was already used for another request: use a new one for each new request")
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

// RememberText is Remember for a reply that is JSON already.
func (tx *Tx) RememberText(agentID int64, key, print string, reply []byte) error {
	if key == "" {
		return nil
	}
	short, err := shortPrint(print)
	if err != nil {
		return err
	}
	return tx.Insert(insertKey, keyCell(key), agentID, short, string(reply), tx.Now.UnixMilli())
}

// keyCell is a key as it is stored: a UUID as its bytes.
func keyCell(key string) any {
	if id, ok := UUIDBytes(key); ok {
		return id
	}
	return key
}

// shortPrint is the stored part of a fingerprint.
func shortPrint(print string) ([]byte, error) { return hex.DecodeString(print[:32]) }

const insertKey = `INSERT INTO idempotency (key, agent_id, fingerprint, reply, created_at) VALUES (?, ?, ?, ?, ?)`

// RememberID keeps the id under which a client has saved. n is the row of the audit log that
// records the save, from which a repeated save is answered.
func (tx *Tx) RememberID(agentID int64, id, print string, n int64) error {
	key, short, err := idRow(id, print)
	if err != nil {
		return err
	}
	return tx.Insert(`INSERT INTO ids (id, agent_id, n, print) VALUES (?, ?, ?, ?)`, key, agentID, n, short)
}

// IDSeen says whether the id of a save is known: somebody has saved under it, or a checkpoint has it.
func (tx *Tx) IDSeen(id string) (seen bool, err error) {
	key, ok := UUIDBytes(id)
	if !ok {
		return false, nil
	}
	_, err = tx.Get(&seen, `SELECT EXISTS (SELECT 1 FROM ids WHERE id = ?) OR EXISTS (SELECT 1 FROM checkpoints WHERE id = ?)`, key, id)
	return seen, err
}

// IDTaken says whether an owner has a checkpoint of an id.
func (tx *Tx) IDTaken(owner, id string) (taken bool, err error) {
	_, err = tx.Get(&taken, `SELECT EXISTS (SELECT 1`+OwnedTables+`?)`, id, owner)
	return taken, err
}

// idRow converts an id and the fingerprint of a request to their stored forms.
func idRow(id, print string) (key, short []byte, err error) {
	key, ok := UUIDBytes(id)
	if !ok {
		return nil, nil, ckpt.Errorf(ckpt.CodeInvalid, "the id %q is not a UUID in lower-case letters", id)
	}
	short, err = shortPrint(print)
	return key, short, err
}

// ReplayedSave answers, from the audit log, a save that was made before under a client's id. found
// says whether there was one.
func (tx *Tx) ReplayedSave(agentID int64, id, print string) (reply SavedReply, found bool, err error) {
	if id == "" {
		return reply, false, nil
	}
	key, short, err := idRow(id, print)
	if err != nil {
		return reply, false, err
	}
	var row struct {
		N      int64    `db:"n"`
		Print  []byte   `db:"print"`
		At     int64    `db:"at"`
		Seq    int64    `db:"seq"`
		Stored int64    `db:"stored"`
		Parent ckpt.Ref `db:"parent"`
		More   ckpt.Ref `db:"more"`
	}
	found, err = tx.Get(&row, `SELECT i.n, i.print, a.at, a.seq, coalesce(a.stored, a.size) AS stored, a.more,
		`+IDOfSave("a.parent")+` AS parent FROM ids i JOIN acts a ON a.n = i.n WHERE i.id = ? AND i.agent_id = ?`, key, agentID)
	if err != nil || !found {
		return reply, false, err
	}
	if !bytes.Equal(row.Print, short) {
		return reply, false, errOtherRequest()
	}
	reply = SavedReply{
		ID: id, Seq: row.Seq, Parent: row.Parent, CreatedAt: ckpt.At(time.UnixMilli(row.At)),
		StoredSize: row.Stored, Pruned: []string{}, n: row.N,
	}
	if row.More != "" {
		var more struct {
			Parent  ckpt.Ref `json:"parent"`
			Suspect bool     `json:"suspect"`
		}
		if err := json.Unmarshal([]byte(row.More), &more); err != nil {
			return reply, false, err
		}
		reply.Suspect = more.Suspect
		if more.Parent != "" {
			reply.Parent = more.Parent
		}
	}
	err = tx.List(&reply.Pruned, `SELECT `+IDOfSave("r.n")+` FROM (SELECT 0 AS place, gone AS n FROM acts WHERE n = ?1 AND gone IS NOT NULL
		UNION ALL SELECT e.key, json_extract(e.value, '$[0]') FROM acts a, json_each(a.more, '$.removed') e
		WHERE a.n = ?1 AND a.more IS NOT NULL) r ORDER BY place`, row.N)
	return reply, true, err
}

// ReplayedFormer answers a save that an owner made under an agent that was given to another owner since. Otherwise the repeated save would
// begin a new agent of the old owner.
func (tx *Tx) ReplayedFormer(owner, agent, id, key, print string) (reply SavedReply, found bool, err error) {
	var given []struct {
		ID int64 `db:"agent_id"`
		N  int64 `db:"n"`
		At int64 `db:"at"`
	}
	err = tx.List(&given, `SELECT o.agent_id, o.n, a.at FROM owner_changes o JOIN acts a ON a.n = o.n
		WHERE o.from_owner = ? AND o.agent = ? ORDER BY o.n DESC`, owner, agent)
	for _, g := range given {
		reply, found, err = tx.ReplayedSave(g.ID, id, print)
		if found && err == nil && reply.n <= g.N {
			return reply, true, nil
		}
		if err == nil && !found {
			found, err = tx.Replayed(g.ID, key, print, &reply)
			if found && err == nil && reply.CreatedAt.UnixMilli() <= g.At {
				return reply, true, nil
			}
		}
		if err != nil && ckpt.CodeOf(err) != ckpt.CodeIdempotencyMismatch { // keys are an agent's own
			return reply, false, err
		}
		err = nil
	}
	return SavedReply{}, false, err
}

// IDOfSave is, in SQL, the id of the checkpoint that a row of the audit log has saved.
func IDOfSave(n string) string {
	return `(SELECT ` + UUIDOf("g.subject") + ` FROM acts g WHERE g.n = ` + n + `)`
}

// TimeOf is, in SQL, a stored time as text.
func TimeOf(column string) string {
	return `strftime('%Y-%m-%dT%H:%M:%S', ` + column + ` / 1000, 'unixepoch') || printf('.%03dZ', ` + column + ` % 1000)`
}

// UUIDOf is, in SQL, a stored UUID as text.
func UUIDOf(column string) string {
	h := "hex(" + column + ")"
	return `lower(substr(` + h + `, 1, 8) || '-' || substr(` + h + `, 9, 4) || '-' || substr(` + h +
		`, 13, 4) || '-' || substr(` + h + `, 17, 4) || '-' || substr(` + h + `, 21))`
}

// SavedReply is the part of a save's reply that does not follow from the request. It is kept with
// the key. A repeated request has the rest.
type SavedReply struct {
	ID         string    `json:"id"`
	Seq        int64     `json:"seq"`
	Parent     ckpt.Ref  `json:"parent"`
	CreatedAt  ckpt.Time `json:"created_at"`
	StoredSize int64     `json:"stored_size"`
	Suspect    bool      `json:"suspect,omitempty"`
	Pruned     []string  `json:"pruned"`

	n int64 // the row of the audit log
}
