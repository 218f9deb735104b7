package db

import (
	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// runRow is a run as the writer needs it.
type runRow struct {
	ID          int64          `db:"id"`
	AgentID     int64          `db:"agent_id"`
	Name        string         `db:"name"`
	Status      ckpt.RunStatus `db:"status"`
	Epoch       int64          `db:"epoch"`
	LastSeq     int64          `db:"last_seq"`
	Removed     int64          `db:"removed"`
	StoredBytes int64          `db:"stored_bytes"`
	Head        ckpt.Ref       `db:"head"`
	EndedAt     ckpt.Time      `db:"ended_at"`
}

const runColumns = `id, agent_id, name, status, epoch, last_seq, removed, stored_bytes, head, ended_at`

// run finds a run, nil where there is none.
func (tx *tx) run(agentID int64, name string) (*runRow, error) {
	var row runRow
	found, err := tx.get(&row, `SELECT `+runColumns+` FROM runs WHERE agent_id = ? AND name = ?`, agentID, name)
	if err != nil || !found {
		return nil, err
	}
	return &row, nil
}

func (tx *tx) runByID(id int64) (*runRow, error) {
	var row runRow
	found, err := tx.get(&row, `SELECT `+runColumns+` FROM runs WHERE id = ?`, id)
	if err != nil || !found {
		return nil, err
	}
	return &row, nil
}

// makeRun finds a run or makes it.
func (tx *tx) makeRun(agentID int64, name string) (*runRow, error) {
	row, err := tx.run(agentID, name)
	if err != nil || row != nil {
		return row, err
	}
	err = tx.exec(`INSERT INTO runs (agent_id, name, started_at, updated_at, segment_at) VALUES (?, ?, ?, ?, ?)`,
		agentID, name, tx.now, tx.now, tx.now)
	if err != nil {
		return nil, err
	}
	return tx.run(agentID, name)
}

// fence refuses a writer that names an older epoch than the run's: somebody
// else has taken the run over. A writer that knows no epoch is not fenced.
func (r *runRow) fence(epoch *int64) error {
	switch {
	case epoch == nil || *epoch == r.Epoch:
		return nil
	case *epoch < r.Epoch:
		return ckpt.Errorf(ckpt.CodeFenced, "run %s was taken over: it is at epoch %d, this writer is of epoch %d; stop, or resume the run", r.Name, r.Epoch, *epoch)
	}
	return ckpt.Errorf(ckpt.CodeInvalid, "epoch %d was never given out: run %s is at epoch %d", *epoch, r.Name, r.Epoch)
}

func runName(name string) string {
	if name == "" {
		return ckpt.MainRun
	}
	return name
}
