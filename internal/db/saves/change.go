package saves

import (
	"context"
	"maps"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// ownedRow is a checkpoint with its run and its agent, for changes by id.
type ownedRow struct {
	ledger.HeldRow
	RunID int64  `db:"run_id"`
	Owner string `db:"owner"`
	Agent string `db:"agent"`
}

// owned finds a checkpoint that the scope may change.
func (s *Saves) owned(tx *ledger.Tx, sc ckpt.Scope, id string) (*ownedRow, *ledger.AgentRow, *ledger.RunRow, error) {
	var rows []ownedRow
	err := tx.List(&rows, `SELECT c.slot, c.n, c.id, c.seq, c.kind, c.created_at, c.stored_size, c.pinned, c.suspect, c.operation,
		c.run_id, a.owner, a.name AS agent`+ledger.ReadTables+`WHERE c.id = ?1 AND (?2 = '' OR a.owner = ?2) ORDER BY a.owner <> ?3 LIMIT 2`,
		id, ledger.WhoseByID(sc), sc.Caller.Owner)
	if err != nil {
		return nil, nil, nil, err
	}
	row, err := ledger.OneOf(rows, func(r *ownedRow) string { return r.Owner }, sc.Caller.Owner, id)
	if err != nil {
		return nil, nil, nil, err
	}
	run, err := tx.RunByID(row.RunID)
	if err != nil {
		return nil, nil, nil, err
	}
	agent, err := s.Agent(tx, row.Owner, row.Agent)
	return row, agent, run, err
}

// Patch changes labels and the pin. Unpinning applies the policy at once, so a checkpoint that only
// the pin kept may be gone after the reply.
func (s *Saves) Patch(_ context.Context, sc ckpt.Scope, id string, p ckpt.CheckpointPatch) (*ckpt.Checkpoint, error) {
	if err := checkPatch(id, p); err != nil {
		return nil, err
	}
	e := ledger.ChangeEntry(sc, "change", id)
	var c *ckpt.Checkpoint
	err := s.Submit(&ledger.Op{Owner: sc.Caller.Owner, Size: 1 + labelBytes(p.Labels), Claim: sqlite.Frees, Entry: e, Do: func(tx *ledger.Tx) error {
		row, agent, run, err := s.owned(tx, sc, id)
		if err != nil {
			return err
		}
		screened := s.ScreenFor(agent, "checkpoint")
		p := p
		if p.Labels != nil {
			labels := *p.Labels
			screened.Labels(&labels)
			if screened.Again(func() error { return ckpt.CheckLabels(labels) }); screened.Err != nil {
				return screened.Err
			}
			p.Labels = &labels
		}
		if err := s.patch(tx, row, agent, run, p, e); err != nil {
			return err
		}
		if err := s.ReportBeside(tx, agent, run.Name, screened.Found); err != nil {
			return err
		}
		if c, err = tx.Reread(row.Owner, id); err != nil || p.Pinned == nil || *p.Pinned {
			return err
		}
		_, err = s.RetainRun(tx, agent, run, e)
		return err
	}})
	return c, err
}

func labelBytes(labels *ckpt.Labels) int64 {
	if labels == nil {
		return 0
	}
	return sqlite.LengthOf(*labels)
}

func checkPatch(id string, p ckpt.CheckpointPatch) error {
	if err := ckpt.CheckID(id); err != nil {
		return err
	}
	if p.Labels == nil && p.Pinned == nil {
		return ckpt.Errorf(ckpt.CodeInvalid, "nothing to change: give labels, pinned, or both")
	}
	if p.Labels == nil {
		return nil
	}
	return ckpt.CheckLabels(*p.Labels)
}

func (s *Saves) patch(tx *ledger.Tx, row *ownedRow, agent *ledger.AgentRow, run *ledger.RunRow, p ckpt.CheckpointPatch, e ledger.AuditEntry) error {
	e.Owner, e.Agent, e.Run, e.Detail = agent.Owner, agent.Name, run.Name, map[string]any{}
	if p.Labels != nil {
		hash, err := ledger.LabelsHash(*p.Labels)
		if err != nil {
			return err
		}
		e.Detail["labels_hash"] = hash
		e.Detail["labels"] = slices.Sorted(maps.Keys(*p.Labels)) // only their names: the log outlives an erasure
		if err := tx.Update(`UPDATE checkpoints SET labels = ? WHERE slot = ?`, *p.Labels, row.Slot); err != nil {
			return err
		}
	}
	if p.Pinned != nil {
		e.Detail["pinned"] = *p.Pinned
		if err := tx.Exec(`UPDATE checkpoints SET pinned = ? WHERE slot = ?`, *p.Pinned, row.Slot); err != nil {
			return err
		}
	}
	if err := tx.Exec(`UPDATE runs SET updated_at = ? WHERE id = ?`, tx.Now, run.ID); err != nil {
		return err
	}
	return tx.Audit(e)
}

// Delete removes one checkpoint on request. A pinned checkpoint must be unpinned first. A
// checkpoint that something needs stays.
func (s *Saves) Delete(_ context.Context, sc ckpt.Scope, id string) (*ckpt.Removal, error) {
	if err := ckpt.CheckID(id); err != nil {
		return nil, err
	}
	e := ledger.ChangeEntry(sc, "delete", id)
	var r *ckpt.Removal
	err := s.Submit(&ledger.Op{Owner: sc.Caller.Owner, Claim: sqlite.Frees, Entry: e, Do: func(tx *ledger.Tx) error {
		var err error
		r, err = s.deleteOne(tx, sc, id, e)
		return err
	}})
	return r, err
}

func (s *Saves) deleteOne(tx *ledger.Tx, sc ckpt.Scope, id string, e ledger.AuditEntry) (*ckpt.Removal, error) {
	row, agent, run, err := s.owned(tx, sc, id)
	if err != nil {
		return nil, err
	}
	if err := mayDelete(tx, row, run); err != nil {
		return nil, err
	}
	e.Owner, e.Agent = agent.Owner, agent.Name
	reason := "deleted by " + sc.Caller.Owner
	if _, err := s.Remove(tx, agent, run, []ledger.HeldRow{row.HeldRow}, []string{reason}, e); err != nil {
		return nil, err
	}
	if sc.Reason != "" { // the row of a removal has the reason of a rule, not a person's own
		e.Run = run.Name
		if err := tx.Audit(e); err != nil {
			return nil, err
		}
	}
	if string(run.Head) == id {
		err = tx.MoveHead(run.ID)
	}
	return &ckpt.Removal{
		Checkpoint: id, Agent: agent.Name, Run: run.Name, Kind: row.Kind, Seq: row.Seq,
		StoredSize: row.StoredSize, Reason: reason,
	}, err
}

func mayDelete(tx *ledger.Tx, row *ownedRow, run *ledger.RunRow) error {
	if row.Pinned {
		return ckpt.Errorf(ckpt.CodeConflict, "checkpoint %s is pinned: unpin it first", row.ID)
	}
	needs, err := tx.NeedsOf(run)
	by := needs.Of(row.ID)
	if err != nil || by == "" || by == ledger.NextSave || by == ledger.BeginningDrift {
		return err
	}
	return ckpt.Errorf(ckpt.CodeConflict, "checkpoint %s is needed by %s", row.ID, by)
}
