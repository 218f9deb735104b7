package db

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/delta"
)

// checkpointRow is a checkpoint that is to be stored, without its state.
type checkpointRow struct {
	N           int64
	ID          string
	Seq         int64
	Kind        ckpt.Kind
	Parent      ckpt.Ref
	CreatedAt   ckpt.Time
	ContentType string
	Labels      ckpt.Labels
	Metadata    string
	Step        ckpt.Ref
	Operation   ckpt.Ref
	Pinned      bool
	Suspect     bool
	program     any
}

// insert writes a checkpoint and its state and counts it in its run.
func (tx *tx) insert(run *runRow, c *checkpointRow, state *encoded) error {
	if _, err := tx.insertRow(run, c, state); err != nil {
		return err
	}
	return tx.noteSaved(run)
}

// insertRow writes a checkpoint and its state and answers the pieces. The run's
// row is still to be written.
func (tx *tx) insertRow(run *runRow, c *checkpointRow, state *encoded) ([]delta.Piece, error) {
	body, pieces, list, err := state.store(tx, run.ID)
	if err != nil {
		return nil, err
	}
	err = tx.exec(insertCheckpoint,
		c.N, c.ID, run.ID, c.Seq, string(c.Kind), c.Parent, c.CreatedAt, state.size, state.stored(), state.sha256, c.ContentType,
		c.Labels, c.Metadata, c.Step, c.Operation, c.Pinned, c.Suspect, state.of, c.program, pieces, body)
	if isTaken(err) {
		return nil, ckpt.Errorf(ckpt.CodeIdempotencyMismatch, "the id %s is taken: make a new UUID of version 7 for each save", c.ID)
	}
	if err != nil {
		return nil, err
	}
	run.LastSeq, run.Head = c.Seq, ckpt.Ref(c.ID)
	run.StoredBytes += state.stored()
	return list, nil
}

// noteSaved writes what saves and removals change of a run.
func (tx *tx) noteSaved(run *runRow) error {
	tx.store.hot.forget(run) // who knows better puts it back
	return tx.exec(updateSavedRun, run.LastSeq, run.Head, run.Removed, run.StoredBytes, tx.now, run.ID)
}

func metadataText(m json.RawMessage) string {
	if len(m) == 0 {
		return "{}"
	}
	return string(m)
}

// restHash covers what no other part of the audit row says and nobody changes
// later: where it came from, when it was made, and what came beside the state.
func restHash(parent, createdAt, contentType, metadata, step, program string) string {
	b := make([]byte, 0, 256)
	for _, field := range [...]string{parent, createdAt, contentType, metadata, step, program} {
		b = append(appendString(b, field), ',')
	}
	return shortHash(b)
}

// shortHash is half of a SHA-256, in hexadecimal: enough where nobody may choose
// both texts.
func shortHash(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// labelsHash is of labels as they are stored, "" for none.
func labelsHash(l ckpt.Labels) (string, error) {
	if len(l) == 0 {
		return "", nil
	}
	text, err := l.MarshalJSON() // as Value stores it
	return shortHash(text), err
}

// rest is restHash of a checkpoint that is to be stored.
func (c *checkpointRow) rest() string {
	program, _ := c.program.(string)
	return restHash(string(c.Parent), c.CreatedAt.String(), c.ContentType, c.Metadata, string(c.Step), program)
}

// noteRest adds the hashes to what the audit row of a save says.
func (c *checkpointRow) noteRest(detail map[string]any) error {
	detail["rest"] = c.rest()
	if c.Pinned {
		detail["pinned"] = true
	}
	labels, err := labelsHash(c.Labels)
	if labels != "" {
		detail["labels"] = labels
	}
	return err
}

// reread answers a checkpoint as this transaction has left it.
func (tx *tx) reread(id string) (*ckpt.Checkpoint, error) {
	var row readRow
	found, err := tx.get(&row, `SELECT `+readColumns+readTables+`WHERE c.id = ?`, id)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, noCheckpoint(id)
	}
	return row.checkpoint()
}
