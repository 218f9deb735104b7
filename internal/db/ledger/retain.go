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
		Operation: h.Operation != "", Released: h.Released}
}

// Pushable says whether a routine save may push a checkpoint out under a policy that keeps so many routine ones.
func (h *HeldRow) Pushable(keep int) bool {
	return h.Kind == ckpt.KindRoutine && keep > 0 || h.Released && !h.Pinned
}

// PushableRows are the checkpoints of a run that are Pushable, newest first.
func (tx *Tx) PushableRows(run *RunRow, keep int) (rows []HeldRow, err error) {
	err = tx.List(&rows, `SELECT `+HeldColumns+` FROM checkpoints WHERE run_id = ?1 AND kind = 'routine' AND ?2 > 0
		UNION ALL SELECT `+HeldColumns+` FROM checkpoints c WHERE run_id = ?1 AND kind = 'pre_operation' AND pinned = 0
		AND EXISTS (SELECT 1 FROM operations o WHERE o.run_id = ?1 AND o.key = c.operation AND o.status = 'succeeded')
		ORDER BY seq DESC`, run.ID, keep)
	return rows, err
}

// RetainForked applies the policy to the run from which a fork has just saved its first own
// checkpoint: the fork no longer needs the other run's checkpoint.
func (s *Core) RetainForked(tx *Tx, fork *RunRow, e AuditEntry) ([]string, error) {
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
	return s.Retain(tx, agent, run, rows, e)
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

// Retain asks the policy about rows, newest first, and removes the rows that it lists.
func (s *Core) Retain(tx *Tx, agent *AgentRow, run *RunRow, rows []HeldRow, e AuditEntry) ([]string, error) {
	needs, err := tx.NeedsOf(run)
	if err != nil {
		return nil, err
	}
	verdicts := Judge(s.Opt.Retention, agent.Settings, tx.Trusted.Time, run, rows, &needs)
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

// Judge asks the plan about checkpoints of a run, newest first.
func Judge(plan retention.Func, p ckpt.Policy, now time.Time, run *RunRow, rows []HeldRow, needs *Needs) []retention.Verdict {
	return plan(HistoryOf(run, rows, needs), p, now)
}

// HistoryOf is what the plan must know of a run.
func HistoryOf(run *RunRow, rows []HeldRow, needs *Needs) retention.History {
	h := retention.History{Status: run.Status, EndedAt: run.EndedAt.Time, Ago: run.Ago(), Checkpoints: make([]retention.Held, len(rows))}
	for i := range rows {
		h.Checkpoints[i] = rows[i].Held()
		h.Checkpoints[i].NeededBy = needs.Of(rows[i].ID)
	}
	return h
}

// Needs says who needs checkpoints of a run, like the view needed_checkpoints.
type Needs struct {
	By   map[string]string // by the checkpoint's id: operations, prompts and forks
	Back string            // the rollback target in case suspected drift becomes critical; "" for none
	Head string            // the parent of the next save; "" for none
}

// The reasons that a person who deletes a checkpoint can overrule.
const (
	NextSave       = "the next save"
	BeginningDrift = "drift that may be beginning"
)

// Of says who needs a checkpoint, "" if nobody does. It names the next save only if nothing else needs the checkpoint: a delete can overrule
// that.
func (n *Needs) Of(id string) string {
	switch {
	case n.By[id] != "":
		return n.By[id]
	case id == n.Back:
		return BeginningDrift
	case id == n.Head:
		return NextSave
	}
	return ""
}

// NeedsOf reads who needs checkpoints of a run.
func (tx *Tx) NeedsOf(run *RunRow) (n Needs, err error) {
	if n.By, err = tx.neededBy(run); err != nil || !run.EndedAt.IsZero() {
		return n, err
	}
	n.Head = string(run.Head)
	if run.BackSeq.Valid {
		_, err = tx.Get(&n.Back, `SELECT id FROM checkpoints WHERE slot = (SELECT slot FROM checkpoints WHERE run_id = ? AND suspect = 0 AND seq <= ?
			AND `+IsIntact+` ORDER BY seq DESC LIMIT 1)`, run.ID, run.BackSeq)
	}
	return n, err
}

// neededBy reads which checkpoints of a run are needed by operations, prompts and forks; nil for none.
func (tx *Tx) neededBy(run *RunRow) (map[string]string, error) {
	var rows []struct {
		ID string `db:"id"`
		By string `db:"needed_by"`
	}
	err := tx.List(&rows, `SELECT checkpoint AS id, 'an ' || status || ' operation' AS needed_by FROM operations
		WHERE run_id = ?1 AND checkpoint IS NOT NULL AND status IN ('open', 'uncertain')
		UNION ALL SELECT checkpoint, 'a prompt' FROM prompts WHERE run_id = ?1 AND checkpoint IS NOT NULL AND answered_at IS NULL
		UNION ALL SELECT f.forked_from, 'a fork' FROM runs f JOIN checkpoints c ON c.id = f.forked_from JOIN agents a ON a.id = f.agent_id
			WHERE c.run_id = ?1 AND f.forked_from IS NOT NULL AND f.last_seq = 0 AND f.ended_at IS NULL
			AND a.owner = (SELECT owner FROM agents WHERE id = ?2)`, run.ID, run.AgentID)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	by := make(map[string]string, len(rows))
	for _, row := range rows {
		if by[row.ID] == "" {
			by[row.ID] = row.By
		}
	}
	return by, nil
}

// gotOnAt reports progress at every hundredth row.
func (tx *Tx) gotOnAt(i int) {
	if i%100 == 99 {
		tx.GotOn()
	}
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
	_, err := tx.Change(&row.Beside, deleteInline, row.Slot)
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
	if _, err := tx.Change(&of, deleteCheckpoint, row.Slot); err != nil {
		return 0, err
	}
	row.Beside = of.Beside
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
