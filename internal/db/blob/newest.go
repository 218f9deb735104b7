package blob

import (
	"database/sql"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// Settle makes sure that the base of a state still exists, is still the newest of the run (segments
// may only be taken from the newest, see Sweep), and is not in doubt. Otherwise the state is stored
// whole. run is the row that the state is saved into, 0 for a new one: the base in memory can be that of an earlier life, which has a row of
// its own and can be removed alone.
func Settle(tx *sqlite.Tx, e *Encoded, run int64) error {
	if e.Base == nil {
		return nil
	}
	if e.Base.RunID == run {
		newest, err := isNewest(tx, e.Base)
		if err != nil || newest {
			return err
		}
	}
	e.describe(nil, nil)
	return nil
}

// isNewest says whether a state still exists, and is the newest state of its run that has pieces.
func isNewest(tx *sqlite.Tx, b *Stored) (newest bool, err error) {
	if b.Doubted() {
		return false, nil
	}
	_, err = tx.Get(&newest, `SELECT EXISTS (SELECT 1 FROM checkpoints WHERE n = ?1 AND id = ?2 AND +run_id = ?3 AND pieces IS NOT NULL)
		AND NOT EXISTS (SELECT 1 FROM checkpoints WHERE run_id = ?3 AND kind IN ('routine', 'pre_operation', 'recovery') AND seq > ?4
		AND pieces IS NOT NULL)`,
		b.N, b.ID, b.RunID, b.Seq)
	return newest, err
}

// Again encodes a checkpoint's state for another checkpoint of a run. It uses the same pieces if
// the state is the newest. The copy does not include what has happened since the first checkpoint,
// so it notes which checkpoint that was.
func Again(tx *sqlite.Tx, runID int64, c *ckpt.Checkpoint) (e Encoded, err error) {
	var row struct {
		N       int64         `db:"n"`
		RunID   int64         `db:"run_id"`
		Pieces  *string       `db:"pieces"`
		StateOf sql.NullInt64 `db:"state_of"`
	}
	found, err := tx.Get(&row, `SELECT c.n, c.run_id, c.pieces, c.state_of FROM checkpoints c CROSS JOIN runs r ON r.id = c.run_id
		CROSS JOIN agents a ON a.id = r.agent_id
		WHERE c.id = ? AND a.owner = ?`, c.ID, c.Owner)
	if err != nil {
		return Encoded{}, err
	}
	of := sql.NullInt64{Valid: true} // a checkpoint of another run, with which a fork began
	switch {
	case found && row.RunID == runID && row.StateOf.Valid:
		of = row.StateOf
	case found && row.RunID == runID:
		of.Int64 = c.Seq
	}
	defer func() { e.Of = of }()
	if !found || row.Pieces == nil {
		return Encode(c.State), nil
	}
	base := &Stored{Place: Place{row.N, row.RunID, c.Seq, c.ID}, SHA256: c.SHA256}
	newest, err := isNewest(tx, base)
	if err != nil || !newest {
		return Encode(c.State), err
	}
	if err := base.standOn(tx.Ctx, tx.Conn, *row.Pieces); err != nil {
		return Encoded{}, err
	}
	return Encoded{Size: c.Size, Sha256: c.SHA256, State: c.State, pieces: base.Pieces, Base: base}, nil
}
