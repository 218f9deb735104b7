package ledger

import (
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

func (h *HeldRow) Held() retention.Held {
	return retention.Held{ID: h.ID, Seq: h.Seq, Kind: h.Kind, CreatedAt: h.CreatedAt.Value.Time, StoredSize: h.StoredSize,
		Pinned: h.Pinned, Suspect: h.Suspect, Damaged: h.Damaged,
		Operation: h.Operation != ""}
}

// RetainSaved applies the policy inside a save. If all is set, because the save made other
// checkpoints suspect, it applies the policy to the whole run. Otherwise it works as retainRoutine.
// The first own checkpoint of a fork releases the checkpoint that the fork came from.
func (s *Core) RetainSaved(tx *Tx, agent *AgentRow, run *RunRow, seq int64, kind ckpt.Kind, all bool, e AuditEntry) (gone []string, err error) {
	if all {
		gone, err = s.RetainRun(tx, agent, run, e)
	} else {
		gone, err = s.retainRoutine(tx, agent, run, kind, e)
	}
	if err != nil || seq != 1 || run.ForkedFrom == "" {
		return gone, err
	}
	freed, err := s.retainForked(tx, run, e.Into(0)) // the row of the save is not about the other run
	return append(gone, freed...), err
}

// retainRoutine removes what a save makes removable. The new checkpoint may push the oldest routine
// checkpoint out. It also becomes the head and the rollback target, so a routine checkpoint, or one
// whose operation succeeded, may be removable if only being head or rollback target kept it. Only
// those are looked at, unless the new checkpoint is not routine or is suspect: then the rollback
// target may be of another kind, and the whole run is looked at.
func (s *Core) retainRoutine(tx *Tx, agent *AgentRow, run *RunRow, kind ckpt.Kind, e AuditEntry) ([]string, error) {
	if run.LastSeq-run.Removed < 2 {
		return []string{}, nil
	}
	keep := agent.Settings.RoutineKeep
	rows, err := tx.RoutineRows(run, keep)
	switch {
	case err != nil:
		return nil, err
	case AllStay(rows, keep):
		return []string{}, nil
	case kind == ckpt.KindRoutine && keep > 0 && !rows[0].Suspect:
		return s.retain(tx, agent, run, rows, e)
	}
	return s.RetainRun(tx, agent, run, e)
}

// RoutineRows are the checkpoints that a routine save may push out, newest first.
func (tx *Tx) RoutineRows(run *RunRow, keep int) (rows []HeldRow, err error) {
	err = tx.List(&rows, `SELECT `+HeldColumns+` FROM checkpoints WHERE run_id = ?1 AND kind = 'routine' AND ?2 > 0
		UNION ALL SELECT `+HeldColumns+` FROM checkpoints c WHERE run_id = ?1 AND kind = 'pre_operation' AND pinned = 0
		AND EXISTS (SELECT 1 FROM operations o WHERE o.run_id = ?1 AND o.key = c.operation AND o.status = 'succeeded')
		ORDER BY seq DESC`, run.ID, keep)
	return rows, err
}

// AllStay says that none of the rows needs to be judged.
func AllStay(rows []HeldRow, keep int) bool {
	for i := range rows {
		if rows[i].Kind != ckpt.KindRoutine {
			return false
		}
	}
	return len(rows) <= keep
}

// retainForked applies the policy to the run from which a fork has just saved its first own
// checkpoint: the fork no longer needs the other run's checkpoint.
func (s *Core) retainForked(tx *Tx, fork *RunRow, e AuditEntry) ([]string, error) {
	var id int64
	found, err := tx.Get(&id, `SELECT c.run_id`+OwnedTables+`(SELECT owner FROM agents WHERE id = ?)`, fork.ForkedFrom, fork.AgentID)
	if err != nil || !found || id == fork.ID {
		return []string{}, err
	}
	run, agent, err := s.RunWithAgent(tx, id)
	if err != nil {
		return nil, err
	}
	return s.RetainRun(tx, agent, run, e)
}

// RetainRun applies the whole policy to a run and returns the ids of the removed checkpoints.
func (s *Core) RetainRun(tx *Tx, agent *AgentRow, run *RunRow, e AuditEntry) ([]string, error) {
	rows, err := tx.History(run.ID)
	if err != nil {
		return nil, err
	}
	return s.retain(tx, agent, run, rows, e)
}

// RetainAll applies the whole policy to every run of an agent.
func (s *Core) RetainAll(tx *Tx, agent *AgentRow, e AuditEntry) ([]string, error) {
	var runs []RunRow
	if err := tx.List(&runs, `SELECT `+RunColumns+` FROM runs WHERE agent_id = ?`, agent.ID); err != nil {
		return nil, err
	}
	gone := []string{}
	for i := range runs {
		e.Run = runs[i].Name
		ids, err := s.RetainRun(tx, agent, &runs[i], e)
		if err != nil {
			return nil, err
		}
		gone = append(gone, ids...)
		tx.GotOn()
	}
	return gone, nil
}

func (tx *Tx) History(runID int64) ([]HeldRow, error) {
	var rows []HeldRow
	err := tx.List(&rows, `SELECT `+HeldColumns+` FROM checkpoints WHERE run_id = ? ORDER BY seq DESC`, runID)
	return rows, err
}

// retain asks the policy about rows, newest first, and removes the rows that it lists.
func (s *Core) retain(tx *Tx, agent *AgentRow, run *RunRow, rows []HeldRow, e AuditEntry) ([]string, error) {
	verdicts, err := tx.Judge(s.Opt.Retention, agent.Settings, tx.Trusted.Time, run, rows, tx.NeededBy)
	if err != nil {
		return nil, err
	}
	_, gone, reasons := Sorted(rows, verdicts)
	if len(gone) == 0 {
		return []string{}, nil
	}
	return s.Remove(tx, agent, run, gone, reasons, e)
}

// Sorted splits rows into those that stay and those that are removed. stay reuses the memory of
// rows, which the caller must not use any more.
func Sorted(rows []HeldRow, verdicts []retention.Verdict) (stay, gone []HeldRow, reasons []string) {
	stay = rows[:0]
	for i, v := range verdicts {
		if v.Remove {
			gone, reasons = append(gone, rows[i]), append(reasons, v.Reason)
		} else {
			stay = append(stay, rows[i])
		}
	}
	return stay, gone, reasons
}

// Judge asks the plan. It looks up who needs a checkpoint only for those that would otherwise be
// removed.
func (tx *Tx) Judge(plan retention.Func, p ckpt.Policy, now time.Time, run *RunRow, rows []HeldRow,
	neededBy func(*RunRow, string) (string, error)) ([]retention.Verdict, error) {
	h := retention.History{Status: run.Status, EndedAt: run.EndedAt.Time, Ago: run.Ago(), Checkpoints: make([]retention.Held, len(rows))}
	for i := range rows {
		h.Checkpoints[i] = rows[i].Held()
		if err := tx.released(run.ID, &rows[i], &h.Checkpoints[i]); err != nil {
			return nil, err
		}
		tx.gotOnAt(i)
	}
	verdicts := plan(h, p, now)
	needed := false
	for i, v := range verdicts {
		if !v.Remove {
			continue
		}
		by, err := neededBy(run, v.ID)
		if err != nil {
			return nil, err
		}
		h.Checkpoints[i].NeededBy = by
		needed = needed || by != ""
		tx.gotOnAt(i)
	}
	if needed {
		verdicts = plan(h, p, now)
	}
	return verdicts, nil
}

// gotOnAt reports progress at every hundredth row.
func (tx *Tx) gotOnAt(i int) {
	if i%100 == 99 {
		tx.GotOn()
	}
}

// Complete adds the facts about a checkpoint that are in other tables.
func (tx *Tx) Complete(run *RunRow, row *HeldRow, held *retention.Held) (err error) {
	if err := tx.released(run.ID, row, held); err != nil {
		return err
	}
	held.NeededBy, err = tx.NeededBy(run, row.ID)
	return err
}

// released sets whether a pre_operation checkpoint's operation succeeded.
func (tx *Tx) released(runID int64, row *HeldRow, held *retention.Held) error {
	if row.Kind != ckpt.KindPreOperation || row.Operation == "" {
		return nil
	}
	_, err := tx.Get(&held.Released, `SELECT EXISTS (SELECT 1 FROM operations
		WHERE run_id = ? AND key = ? AND status = 'succeeded')`, runID, row.Operation)
	return err
}

// NeededBy says who needs a checkpoint, like the view needed_checkpoints. It names the next save
// only if nothing else needs the checkpoint: a delete can overrule that.
func (tx *Tx) NeededBy(run *RunRow, id string) (string, error) {
	var by string
	_, err := tx.Get(&by, `SELECT 'an ' || status || ' operation' FROM operations
		WHERE run_id = ?1 AND checkpoint = ?2 AND status IN ('open', 'uncertain')
		UNION ALL SELECT 'a prompt' FROM prompts WHERE run_id = ?1 AND checkpoint = ?2 AND answered_at IS NULL
		UNION ALL SELECT 'a fork' FROM runs f JOIN agents a ON a.id = f.agent_id WHERE f.forked_from = ?2 AND f.last_seq = 0 AND f.ended_at IS NULL
			AND a.owner = (SELECT owner FROM agents WHERE id = ?3)
		LIMIT 1`, run.ID, id, run.AgentID)
	if err == nil && by == "" && run.BackSeq.Valid && run.EndedAt.IsZero() {
		by, err = tx.neededToGoBack(run, id)
	}
	if by == "" && string(run.Head) == id && run.EndedAt.IsZero() {
		by = NextSave
	}
	return by, err
}

// The reasons that a person who deletes a checkpoint can overrule.
const (
	NextSave       = "the next save"
	BeginningDrift = "drift that may be beginning"
)

// neededToGoBack says whether a checkpoint is the rollback target in case suspected drift becomes
// critical.
func (tx *Tx) neededToGoBack(run *RunRow, id string) (string, error) {
	var is bool
	_, err := tx.Get(&is, `SELECT id = ?3 FROM checkpoints WHERE slot = (SELECT slot FROM checkpoints WHERE run_id = ?1 AND suspect = 0 AND seq <= ?2
		AND `+IsIntact+` ORDER BY seq DESC LIMIT 1)`, run.ID, run.BackSeq, id)
	if err != nil || !is {
		return "", err
	}
	return BeginningDrift, nil
}

// Remove removes checkpoints of one run, notes each in the audit log, and returns their ids.
// Segments that no other checkpoint uses are removed too.
func (s *Core) Remove(tx *Tx, agent *AgentRow, run *RunRow, gone []HeldRow, reasons []string, e AuditEntry) ([]string, error) {
	ids, err := s.RemoveRows(tx, agent, run, gone, reasons, e)
	if err != nil {
		return nil, err
	}
	tx.Store.RunCache.Forget(run)
	return ids, tx.Exec(updateRemoved, run.Removed, run.StoredBytes, tx.Now, run.ID)
}

// RemoveRows is Remove, except that the caller must still write the run's row.
func (s *Core) RemoveRows(tx *Tx, agent *AgentRow, run *RunRow, gone []HeldRow, reasons []string, e AuditEntry) ([]string, error) {
	ids := make([]string, len(gone))
	var freed, beside int64
	for i, row := range gone {
		ids[i] = row.ID
		bytes, err := tx.removeOne(run, &row)
		if err != nil {
			return nil, err
		}
		freed += bytes
		beside += row.Beside
		tx.OnCommit(func() { s.States.Forget(row.ID) })
		if err := s.unmark(tx, row.ID); err != nil {
			return nil, err
		}
		if err := tx.auditRemoval(e, agent, run, &row, reasons[i]); err != nil {
			return nil, err
		}
		tx.gotOnAt(i)
	}
	run.Removed += int64(len(gone))
	run.StoredBytes -= freed
	tx.Tally.Add(agent.Owner, -freed-beside)
	return ids, nil
}

// MoveHead moves the head of a run, if it was removed, to its newest checkpoint, or to none. Checkpoints that the run has given up by going back do not count.
func (tx *Tx) MoveHead(runID int64) error {
	return tx.Exec(`UPDATE runs SET head = (SELECT id FROM checkpoints WHERE run_id = ?1
			AND (seq > runs.stretch_seq OR seq <= runs.stretch_from) ORDER BY seq DESC LIMIT 1)
		WHERE id = ?1 AND head IS NOT NULL AND NOT EXISTS (SELECT 1 FROM checkpoints WHERE id = runs.head AND +run_id = runs.id)`, runID)
}

// RemoveInline deletes those rows that have no pieces; RemoveRows does the rest and reports all.
func (tx *Tx) RemoveInline(gone []HeldRow) error {
	for i := range gone {
		if row := &gone[i]; row.Inline && !row.removed {
			if err := tx.deleteInline(row); err != nil {
				return err
			}
			row.removed = true
		}
	}
	return nil
}

// GiveRow prepares the row of a removed checkpoint for another checkpoint.
func (tx *Tx) GiveRow(row *HeldRow) error {
	row.removed = true
	if row.Beside > 0 {
		return nil
	}
	_, err := tx.Get(&row.Beside, besideOf, row.Slot)
	return err
}

func (tx *Tx) deleteInline(row *HeldRow) error {
	if row.Beside > 0 {
		return tx.Exec(deleteKnown, row.Slot)
	}
	_, err := tx.Get(&row.Beside, deleteInline, row.Slot)
	tx.Wrote = true
	return err
}

// removeOne deletes a checkpoint and returns how many stored bytes that freed.
func (tx *Tx) removeOne(run *RunRow, row *HeldRow) (int64, error) {
	if row.removed {
		return row.StoredSize, nil
	}
	if row.Inline {
		return row.StoredSize, tx.deleteInline(row)
	}
	var of struct {
		Pieces *string `db:"pieces"`
		Beside int64   `db:"beside"`
	}
	if _, err := tx.Get(&of, deleteCheckpoint, row.Slot); err != nil {
		return 0, err
	}
	tx.Wrote, row.Beside = true, of.Beside
	if of.Pieces == nil {
		return row.StoredSize, nil
	}
	return blob.Sweep(tx.Tx, run.ID, row.Seq, *of.Pieces)
}

// DropRows removes a run that has no checkpoint left and all that belongs to it. It returns how
// many other rows it removed.
func (s *Core) DropRows(tx *Tx, agent *AgentRow, run *RunRow) (rows int64, err error) {
	id := run.ID
	if err := tx.freeRun(agent.Owner, id); err != nil {
		return 0, err
	}
	if err := tx.forgetNoticesOf(agent, run); err != nil {
		return 0, err
	}
	err = tx.Exec(`DELETE FROM event_batches WHERE owner = ? AND n IN (SELECT batch FROM events WHERE run_id = ?)`, agent.Owner, id)
	if err != nil {
		return 0, err
	}
	err = tx.Exec(`UPDATE trees SET until = ? WHERE until IS NULL AND id IN (SELECT tree_id FROM checkpoint_trees WHERE run_id = ?)`, tx.Now, id)
	if err != nil {
		return 0, err
	}
	for _, table := range []string{"prompts", "findings", "events", "operations", "steps", "segments", "checkpoint_trees"} {
		n, err := tx.ExecCount(`DELETE FROM `+table+` WHERE run_id = ?`, id)
		if err != nil {
			return 0, err
		}
		rows += n
	}
	s.ForgetPast(id)
	return rows, tx.Exec(`DELETE FROM runs WHERE id = ?`, id)
}
