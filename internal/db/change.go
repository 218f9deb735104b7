package db

import (
	"context"
	"maps"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// ownedRow is a checkpoint, its run and its agent, for what changes one by its id.
type ownedRow struct {
	heldRow
	RunID int64  `db:"run_id"`
	Owner string `db:"owner"`
	Agent string `db:"agent"`
}

// owned finds a checkpoint that the scope may change.
func (s *saves) owned(tx *tx, sc ckpt.Scope, id string) (*ownedRow, *agentRow, *runRow, error) {
	var row ownedRow
	found, err := tx.get(&row, `SELECT c.n, c.id, c.seq, c.kind, c.created_at, c.stored_size, c.pinned, c.suspect, c.operation,
		c.run_id, a.owner, a.name AS agent`+readTables+`WHERE c.id = ?`, id)
	if err != nil {
		return nil, nil, nil, err
	}
	if !found || !mayRead(sc, row.Owner) {
		return nil, nil, nil, noCheckpoint(id)
	}
	run, err := tx.runByID(row.RunID)
	if err != nil {
		return nil, nil, nil, err
	}
	agent, err := s.agent(tx, row.Owner, row.Agent)
	return &row, agent, run, err
}

// Patch changes labels and the pin. Unpinning applies the policy at once, so
// that what only the pin had kept may be gone after the answer.
func (s *saves) Patch(_ context.Context, sc ckpt.Scope, id string, p ckpt.CheckpointPatch) (*ckpt.Checkpoint, error) {
	if err := checkPatch(id, p); err != nil {
		return nil, err
	}
	e := changeEntry(sc, "change", id)
	var c *ckpt.Checkpoint
	err := s.write(&op{owner: sc.Caller.Owner, size: 1 + labelBytes(p.Labels), claim: sqlite.Frees, entry: e, apply: func(tx *tx) error {
		row, agent, run, err := s.owned(tx, sc, id)
		if err != nil {
			return err
		}
		screened := s.screenFor(agent, "checkpoint")
		p := p
		if p.Labels != nil {
			labels := *p.Labels
			if screened.labels(&labels); screened.err != nil {
				return screened.err
			}
			p.Labels = &labels
		}
		if err := s.patch(tx, row, agent, run, p, e); err != nil {
			return err
		}
		if err := s.reportBeside(tx, agent, run.Name, screened.found); err != nil {
			return err
		}
		if c, err = tx.reread(id); err != nil || p.Pinned == nil || *p.Pinned {
			return err
		}
		_, err = s.retainRun(tx, agent, run, e)
		return err
	}})
	return c, err
}

func labelBytes(labels *ckpt.Labels) int64 {
	if labels == nil {
		return 0
	}
	return lengthOf(*labels)
}

func checkPatch(id string, p ckpt.CheckpointPatch) error {
	if err := ckpt.CheckID(id); err != nil {
		return err
	}
	if p.Labels == nil && p.Pinned == nil {
		return ckpt.Errorf(ckpt.CodeInvalid, "nothing to change: say labels, pinned, or both")
	}
	if p.Labels == nil {
		return nil
	}
	return ckpt.CheckLabels(*p.Labels)
}

func (s *saves) patch(tx *tx, row *ownedRow, agent *agentRow, run *runRow, p ckpt.CheckpointPatch, e auditEntry) error {
	e.Owner, e.Agent, e.Run, e.Detail = agent.Owner, agent.Name, run.Name, map[string]any{}
	if p.Labels != nil {
		hash, err := labelsHash(*p.Labels)
		if err != nil {
			return err
		}
		e.Detail["labels_hash"] = hash
		e.Detail["labels"] = slices.Sorted(maps.Keys(*p.Labels)) // not what they say: the log outlives an erasure
		if err := tx.exec(`UPDATE checkpoints SET labels = ? WHERE n = ?`, *p.Labels, row.N); err != nil {
			return err
		}
	}
	if p.Pinned != nil {
		e.Detail["pinned"] = *p.Pinned
		if err := tx.exec(`UPDATE checkpoints SET pinned = ? WHERE n = ?`, *p.Pinned, row.N); err != nil {
			return err
		}
	}
	if err := tx.exec(`UPDATE runs SET updated_at = ? WHERE id = ?`, tx.now, run.ID); err != nil {
		return err
	}
	return tx.audit(e)
}

// Delete removes one checkpoint because somebody says so. A pinned one must be
// unpinned first, and one that something needs stays.
func (s *saves) Delete(_ context.Context, sc ckpt.Scope, id string) (*ckpt.Removal, error) {
	if err := ckpt.CheckID(id); err != nil {
		return nil, err
	}
	e := changeEntry(sc, "delete", id)
	var r *ckpt.Removal
	err := s.write(&op{owner: sc.Caller.Owner, claim: sqlite.Frees, entry: e, apply: func(tx *tx) error {
		var err error
		r, err = s.deleteOne(tx, sc, id, e)
		return err
	}})
	return r, err
}

func (s *saves) deleteOne(tx *tx, sc ckpt.Scope, id string, e auditEntry) (*ckpt.Removal, error) {
	row, agent, run, err := s.owned(tx, sc, id)
	if err != nil {
		return nil, err
	}
	if err := mayDelete(tx, row, run); err != nil {
		return nil, err
	}
	e.Owner, e.Agent = agent.Owner, agent.Name
	reason := "deleted by " + sc.Caller.Owner
	if _, err := s.remove(tx, agent, run, []heldRow{row.heldRow}, []string{reason}, e); err != nil {
		return nil, err
	}
	if string(run.Head) == id {
		err = tx.exec(`UPDATE runs SET head = (SELECT id FROM checkpoints WHERE run_id = ?1 ORDER BY n DESC LIMIT 1) WHERE id = ?1`, run.ID)
	}
	return &ckpt.Removal{Checkpoint: id, Agent: agent.Name, Run: run.Name, Kind: row.Kind, Seq: row.Seq, StoredSize: row.StoredSize, Reason: reason}, err
}

func mayDelete(tx *tx, row *ownedRow, run *runRow) error {
	if row.Pinned {
		return ckpt.Errorf(ckpt.CodeConflict, "checkpoint %s is pinned: unpin it first", row.ID)
	}
	by, err := tx.neededBy(run, row.ID)
	if err != nil || by == "" || by == nextSave || by == beginningDrift {
		return err
	}
	return ckpt.Errorf(ckpt.CodeConflict, "checkpoint %s is needed by %s", row.ID, by)
}
