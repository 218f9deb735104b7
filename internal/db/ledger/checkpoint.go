package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/delta"
)

// CheckpointRow is a checkpoint to be stored, without its state.
type CheckpointRow struct {
	Takes       *HeldRow // a removed checkpoint whose row it takes over; nil for a row of its own
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
	Program     any
}

// Place is the checkpoint's place in the history of a run.
func (c *CheckpointRow) Place(run *RunRow) blob.Place {
	return blob.Place{N: c.N, RunID: run.ID, Seq: c.Seq, ID: c.ID}
}

// InsertRow writes a checkpoint and its state and returns the pieces. The caller must still write
// the run's row.
func (tx *Tx) InsertRow(run *RunRow, c *CheckpointRow, state *blob.Encoded) ([]delta.Piece, error) {
	body, pieces, list, err := state.Store(tx.Tx, run.ID, c.N)
	if err != nil {
		return nil, err
	}
	if c.Takes != nil {
		err = tx.take(c.Takes, c.N, c.ID, c.Seq, c.Parent, c.CreatedAt, state.Size, state.Stored(), state.Sha256, c.ContentType,
			c.Labels, c.Metadata, c.Step, c.Operation, c.Suspect, state.Of, c.Program, body)
	} else if c.Seq > MaxSeq {
		err = ckpt.Errorf(ckpt.CodeConflict, "run %s already has %d checkpoints, and cannot have more: begin another run", run.Name, run.LastSeq)
	} else {
		err = tx.Insert(insertCheckpoint, Slot(run.ID, c.Seq),
			c.N, c.ID, run.ID, c.Seq, string(c.Kind), c.Parent, c.CreatedAt, state.Size, state.Stored(), state.Sha256, c.ContentType,
			c.Labels, c.Metadata, c.Step, c.Operation, c.Pinned, c.Suspect, state.Of, c.Program, pieces, body)
	}
	if err != nil {
		return nil, err
	}
	tx.Store.newest.raise(run.AgentID, newestCheckpoint{run: run.ID, seq: c.Seq, n: c.N, kind: c.Kind})
	run.LastSeq, run.Head = c.Seq, ckpt.Ref(c.ID)
	run.StoredBytes += state.Stored()
	return list, nil
}

// take overwrites the row of a removed checkpoint with another checkpoint. A missing row is not the
// caller's error: another program has changed the file.
func (tx *Tx) take(row *HeldRow, columns ...any) error {
	tx.Stored += sqlite.RowLength(columns...) + int64(len(ckpt.KindRoutine)) // the bytes of the removed checkpoint are subtracted apart
	changed, err := tx.ExecCount(takeRow, append(columns, row.Slot, row.N)...)
	if err == nil && changed != 1 {
		err = &sqlite.FatalError{Err: fmt.Errorf(
			"another program has changed the checkpoints: that of row %d of the audit log is not where the daemon had written it", row.N)}
	}
	return err
}

// NoteSaved writes the columns of a run that saves and removals change.
func (tx *Tx) NoteSaved(run *RunRow) error {
	tx.Store.RunCache.Forget(run)
	return tx.Exec(updateSavedRun, run.LastSeq, run.Head, run.Removed, run.StoredBytes, tx.Now, run.ID)
}

// Held is the checkpoint in the form that retention needs.
func (c *CheckpointRow) Held(run *RunRow, state *blob.Encoded) HeldRow {
	return HeldRow{Slot: Slot(run.ID, c.Seq), N: c.N, ID: c.ID, Seq: c.Seq, Kind: c.Kind, CreatedAt: Lenient[ckpt.Time]{Value: c.CreatedAt},
		StoredSize: state.Stored(), Pinned: c.Pinned, Suspect: c.Suspect, Operation: c.Operation, Inline: state.Body != nil,
		Beside: sqlite.RowLength(c.ID, string(c.Kind), c.Parent, c.CreatedAt, state.Sha256, c.ContentType, c.Labels, c.Metadata, c.Step,
			c.Operation, c.Program)}
}

func MetadataText(m json.RawMessage) string {
	if len(m) == 0 {
		return "{}"
	}
	return string(m)
}

// RestHash covers the facts that came beside the state, that no other part of a save's row holds,
// and that never change later. It is nil if all of them have the default. created is the time of
// the checkpoint if it is not the row's time, as for an imported checkpoint, and "" otherwise.
func RestHash(created, contentType, metadata, step, program, operation string) []byte {
	if created == "" && contentType == "application/json" && metadata == "{}" && step == "" && program == "" && operation == "" {
		return nil
	}
	return RestSum(created, contentType, metadata, step, program, operation)
}

// RestSum is half of the SHA-256 of several fields.
func RestSum(fields ...string) []byte {
	b := make([]byte, 0, 256)
	for _, field := range fields {
		b = append(AppendString(b, field), ',')
	}
	return sum(b)[:16]
}

// ShortHash is half of a SHA-256, in hexadecimal. That is enough if no attacker can choose both
// texts.
func ShortHash(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// LabelsHash is the hash of labels as they are stored, "" for none.
func LabelsHash(l ckpt.Labels) (string, error) {
	if len(l) == 0 {
		return "", nil
	}
	text, err := l.MarshalJSON() // the same text that Value stores
	return ShortHash(text), err
}

// Facts returns what the row of a save says of a checkpoint that this transaction stores at the end
// of run's history.
func (tx *Tx) Facts(run *RunRow, c *CheckpointRow, state *blob.Encoded, parentN int64) (*SaveFacts, error) {
	f := &SaveFacts{Kind: c.Kind, Seq: c.Seq, Parent: c.Parent, ParentN: parentN, Size: state.Size, Stored: state.Stored(), Sha256: state.Sha256,
		Pinned: c.Pinned, Suspect: c.Suspect}
	if c.Parent != "" && parentN == 0 {
		if _, err := tx.Get(&f.ParentN, `SELECT c.n`+OwnedTables+`(SELECT owner FROM agents WHERE id = ?)`, c.Parent, run.AgentID); err != nil {
			return nil, err
		}
	}
	created := ""
	if !c.CreatedAt.Equal(tx.Now.Time) {
		created = c.CreatedAt.String()
	}
	program, _ := c.Program.(string)
	f.Rest = RestHash(created, c.ContentType, c.Metadata, string(c.Step), program, string(c.Operation))
	var err error
	f.Labels, err = LabelsHash(c.Labels)
	return f, err
}

// Reread returns a checkpoint of an owner as this transaction has left it.
func (tx *Tx) Reread(owner, id string) (*ckpt.Checkpoint, error) {
	var row ReadRow
	found, err := tx.Get(&row, `SELECT `+ReadColumns+treesColumn+OwnedTables+`?`, id, owner)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, NoCheckpoint(id)
	}
	return row.Checkpoint()
}
