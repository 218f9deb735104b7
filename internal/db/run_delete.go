package db

import (
	"context"
	"fmt"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// removedAtOnce is how many checkpoints one transaction removes. More checkpoints take several
// transactions, so that other callers do not wait for long.
const removedAtOnce = 1000

// DeleteRun removes a run with everything that belongs to it. It is refused while the run's owner
// is alive, and while something in it waits for a person; an administrator may force it. Pinned
// checkpoints stay, and the run with them. If the call is interrupted, repeating it finishes the
// work.
func (s *Store) DeleteRun(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, force bool) (*ckpt.DeletedRun, error) {
	if err := ref.Check(); err != nil {
		return nil, err
	}
	e := ledger.Entry(sc, "delete_run", ref.Agent)
	e.Run = ledger.RunName(ref.Run)
	if force && !sc.Admin {
		err := ckpt.Errorf(ckpt.CodeDenied, "only an administrator may force a run to be deleted")
		s.RefusedBefore(e, err)
		return nil, err
	}
	deleted := &ckpt.DeletedRun{}
	var life int64
	for more := true; more; {
		var gone ckpt.DeletedRun
		err := s.Submit(&ledger.Op{Owner: sc.Caller.Owner, Claim: sqlite.Frees, Entry: e, Do: func(tx *ledger.Tx) error {
			gone = ckpt.DeletedRun{}
			agent, run, err := s.sameLife(tx, sc, ref, &life)
			if err != nil {
				return err
			}
			if err := s.mayDeleteRun(tx, agent, run, force); err != nil {
				return err
			}
			more, err = s.deleteSome(tx, sc, agent, run, e, deleted.Checkpoints, &gone)
			return err
		}})
		if err != nil {
			return nil, err
		}
		gone.Checkpoints += deleted.Checkpoints
		deleted = &gone
	}
	s.sweepNow(ctx)
	return deleted, nil
}

// sameLife is knownRun for work that takes several transactions: the run that the first one found, as
// long as it has not been begun anew since.
func (s *Store) sameLife(tx *ledger.Tx, sc ckpt.Scope, ref ckpt.RunRef, life *int64) (*ledger.AgentRow, *ledger.RunRow, error) {
	agent, run, err := s.knownRun(tx, sc, ref)
	switch {
	case err != nil:
	case *life == 0:
		*life = run.Life
	case run.Life != *life:
		err = ckpt.Errorf(ckpt.CodeConflict, "run %s was begun anew meanwhile: its former life is %s", run.Name, ckpt.LifeName(run.Name, 1))
	}
	return agent, run, err
}

// sweepNow removes the files that no checkpoint names any more. If it fails, the next sweep removes
// them.
func (s *Store) sweepNow(ctx context.Context) {
	if err := s.SweepFiles(ctx); err != nil && ctx.Err() == nil {
		s.Log.Warn("files without a checkpoint could not be removed yet", "error", err)
	}
}

// mayDeleteRun refuses to delete a run that is still in use or waits for a person.
func (s *Store) mayDeleteRun(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, force bool) error {
	var pinned string
	if _, err := tx.Get(&pinned, `SELECT id FROM checkpoints WHERE run_id = ? AND pinned = 1 LIMIT 1`, run.ID); err != nil {
		return err
	}
	if pinned != "" {
		return ckpt.Errorf(ckpt.CodeConflict, "run %s cannot be deleted: its checkpoint %s is pinned; unpin it first", run.Name, pinned)
	}
	var fork string
	_, err := tx.Get(&fork, `SELECT f.name FROM runs f JOIN checkpoints c ON c.id = f.forked_from JOIN agents a ON a.id = f.agent_id
		WHERE +c.run_id = ?1 AND f.id <> ?1 AND f.last_seq = 0 AND f.ended_at IS NULL
		AND a.owner = (SELECT owner FROM agents WHERE id = ?2) LIMIT 1`, run.ID, run.AgentID) // another owner can have the same ids
	if err != nil {
		return err
	}
	if fork != "" {
		return ckpt.Errorf(ckpt.CodeConflict,
			"run %s cannot be deleted: its fork %s has no checkpoint of its own yet; save one in the fork, or end the fork, first", run.Name, fork)
	}
	if force { // its audit row names the operations
		return nil
	}
	if s.OwnerAlive(run) {
		return ckpt.Errorf(ckpt.CodeConflict, "run %s has an owner that is %s: end it first", run.Name, s.lifeOfOwner(run))
	}
	if _, elsewhere := s.OtherOwner(run.ID); elsewhere { // its operations are resolved there
		return nil
	}
	rows, err := unresolved(tx, run)
	if err != nil || len(rows) == 0 {
		return err
	}
	o := &rows[0]
	return ckpt.UncertainError(fmt.Sprintf("run %s cannot be deleted", run.Name), run.Name, &o.Operation, tx.Now, ckpt.ResolveCommand(agent.Name, run.Name, o.Key))
}

// deleteSome removes the oldest checkpoints of a run, and the run itself if none is left. before is
// how many checkpoints earlier transactions removed.
func (s *Store) deleteSome(tx *ledger.Tx, sc ckpt.Scope, agent *ledger.AgentRow, run *ledger.RunRow,
	e ledger.AuditEntry, before int64, gone *ckpt.DeletedRun) (more bool, err error) {
	gone.Agent, gone.Owner, gone.Run = agent.Name, agent.Owner, run.Name
	rows, err := oldestOf(tx, run)
	if err != nil {
		return false, err
	}
	if gone.Checkpoints = int64(len(rows)); len(rows) > 0 {
		if err := s.removeBy(tx, sc, agent, run, rows, e); err != nil {
			return false, err
		}
	}
	if len(rows) == removedAtOnce {
		return true, nil
	}
	tx.OnCommit(s.prompts.Tell)
	unknown, err := unresolved(tx, run)
	if err != nil {
		return false, err
	}
	if gone.Rows, err = s.DropRows(tx, agent, run); err != nil {
		return false, err
	}
	e.Owner, e.Life, e.Detail = agent.Owner, run.Life, map[string]any{"checkpoints": before + gone.Checkpoints, "rows": gone.Rows, "status": run.Status}
	if gone.Uncertain = named(unknown); len(unknown) > 0 {
		e.Detail["uncertain_operations"] = gone.Uncertain
	}
	return false, tx.Audit(e)
}

func oldestOf(tx *ledger.Tx, run *ledger.RunRow) (rows []ledger.HeldRow, err error) {
	return rows, tx.List(&rows, `SELECT `+ledger.HeldColumns+` FROM checkpoints WHERE run_id = ? ORDER BY seq LIMIT 0 + ?`, run.ID, removedAtOnce)
}

func (s *Store) removeBy(tx *ledger.Tx, sc ckpt.Scope, agent *ledger.AgentRow, run *ledger.RunRow, rows []ledger.HeldRow, e ledger.AuditEntry) error {
	reasons := make([]string, len(rows))
	for i := range reasons {
		reasons[i] = "deleted by " + sc.Caller.Owner
	}
	_, err := s.Remove(tx, agent, run, rows, reasons, e)
	return err
}

// ClearRun removes the checkpoints of a run, except those that are pinned, or that an operation, a
// prompt or a fork needs. The run and its steps stay.
func (s *Store) ClearRun(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef) (*ckpt.ClearedRun, error) {
	if err := ref.Check(); err != nil {
		return nil, err
	}
	e := ledger.Entry(sc, "clear_run", ref.Agent)
	e.Run = ledger.RunName(ref.Run)
	cleared := &ckpt.ClearedRun{}
	var life int64
	for after, more := int64(0), true; more; {
		var some ckpt.ClearedRun
		var last int64
		err := s.Submit(&ledger.Op{Owner: sc.Caller.Owner, Claim: sqlite.Frees, Entry: e, Do: func(tx *ledger.Tx) error {
			agent, run, err := s.sameLife(tx, sc, ref, &life)
			if err != nil {
				return err
			}
			some = ckpt.ClearedRun{Agent: agent.Name, Owner: agent.Owner, Run: run.Name}
			last, more, err = s.clearSome(tx, sc, agent, run, e, after, &some)
			return err
		}})
		if err != nil {
			return nil, err
		}
		some.Removed, some.Kept, after = some.Removed+cleared.Removed, some.Kept+cleared.Kept, last
		cleared = &some
	}
	s.sweepNow(ctx)
	return cleared, nil
}

func (s *Store) clearSome(tx *ledger.Tx, sc ckpt.Scope, agent *ledger.AgentRow, run *ledger.RunRow,
	e ledger.AuditEntry, after int64, cleared *ckpt.ClearedRun) (last int64, more bool, err error) {
	var rows, gone []ledger.HeldRow
	if err := tx.List(&rows, `SELECT `+ledger.HeldColumns+
		` FROM checkpoints WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT 0 + ?`, run.ID, after, removedAtOnce); err != nil {
		return 0, false, err
	}
	needs, err := tx.NeedsOf(run)
	if err != nil {
		return 0, false, err
	}
	for _, row := range rows {
		last = row.Seq
		by := needs.Of(row.ID)
		if row.Pinned || by != "" && by != ledger.NextSave && by != ledger.BeginningDrift {
			cleared.Kept++
			continue
		}
		gone = append(gone, row)
	}
	if cleared.Removed = int64(len(gone)); len(gone) > 0 {
		if err := s.removeBy(tx, sc, agent, run, gone, e); err != nil {
			return 0, false, err
		}
		if err := tx.MoveHead(run.ID); err != nil {
			return 0, false, err
		}
	}
	s.ForgetPast(run.ID) // its history has changed
	e.Owner, e.Detail = agent.Owner, map[string]any{"removed": cleared.Removed, "kept": cleared.Kept}
	return last, len(rows) == removedAtOnce, tx.Audit(e)
}
