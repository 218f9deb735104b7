package driftlog

import (
	"context"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
)

// NewStretch begins a new segment, so that a run's drift is counted from zero: its owner went back,
// or was replaced. from is the checkpoint that the run goes on from, nil for none. closing says why
// the segment begins.
//
// Going back to a checkpoint closes the findings whose evidence came after it. A new owner begins its
// work anew, so that closes the findings about the work of the owner before. What looks like a secret,
// and damage, stay open.
//
// The rollback target that was kept stays until the run is next written to.
func (s *Drifts) NewStretch(tx *ledger.Tx, run *ledger.RunRow, from *ckpt.Checkpoint, closing ckpt.Closing) error {
	var seq int64
	if from != nil && from.Run == run.Name {
		seq = from.Seq
	}
	err := tx.Exec(`UPDATE runs SET stretch = stretch + 1, stretch_seq = last_seq, stretch_from = ?, progress = NULL WHERE id = ?`, seq, run.ID)
	if err != nil {
		return err
	}
	tx.Touches(run)
	run.Progress = nil
	run.Stretch++
	which := `since_seq >= ?4`
	switch {
	case closing == ckpt.ClosedResumed && from != nil && from.Suspect: // an operator has decided to trust it
		which = `?4 >= 0 AND about <> 'run'`
	case closing == ckpt.ClosedResumed:
		which += ` OR about = 'work'`
	}
	return s.leaveStretch(tx, run, closing, which, seq)
}

// EndStretch closes the findings of a run that begins anew, in the life that is over.
func (s *Drifts) EndStretch(tx *ledger.Tx, run *ledger.RunRow) error {
	return s.leaveStretch(tx, run, ckpt.ClosedBegun, `?4 >= 0`, 0)
}

// leaveStretch ends the present segment: what the detectors know of it in memory is forgotten, and
// the findings that a condition names are closed.
func (s *Drifts) leaveStretch(tx *ledger.Tx, run *ledger.RunRow, closing ckpt.Closing, which string, seq int64) error {
	s.Watches.drop(run.ID)
	tx.OnCommit(func() { s.Shared.forgetRun(run.ID) })
	tx.Run0, tx.Watch0 = nil, nil
	err := tx.Fill(`UPDATE findings SET closed = ?1, closed_at = ?2, until_seq = CASE WHEN since_seq IS NULL THEN NULL ELSE ?3 END
		WHERE run_id = ?5 AND closed IS NULL AND rule NOT IN ('secret', 'corruption') AND (`+which+`)`,
		string(closing), tx.Now, run.LastSeq, seq, run.ID)
	if err != nil {
		return err
	}
	return markDoubted(tx, run)
}

// markDoubted marks the checkpoints of warnings about the state that are closed. While such a warning was open, a way back led before
// its checkpoints.
func markDoubted(tx *ledger.Tx, run *ledger.RunRow) error {
	tx.Touches(run)
	return tx.Exec(`UPDATE checkpoints SET suspect = 1 WHERE run_id = ?1 AND kind IN ('routine', 'pre_operation', 'recovery') AND suspect = 0
		AND EXISTS (SELECT 1 FROM suspicions f WHERE f.run_id = ?1 AND checkpoints.seq > f.since_seq AND checkpoints.seq <= coalesce(f.until_seq, checkpoints.seq))`, run.ID)
}

// GoBack makes a restored checkpoint the one that the run goes on from. That begins a new segment,
// unless the checkpoint is the head and no open finding has evidence from before or after it.
func (s *Drifts) GoBack(tx *ledger.Tx, agent *ledger.AgentRow, c *ckpt.Checkpoint, e ledger.AuditEntry) error {
	run, err := tx.Run(agent.ID, c.Run)
	if err != nil || run == nil || run.Ago() > 0 { // an earlier life stays as it ended
		return err
	}
	if err := s.OwnedHere(run); err != nil {
		return err
	}
	w, err := s.WatchRun(tx, agent, run, nil)
	if err != nil {
		return err
	}
	stays := string(run.Head) == c.ID && !slices.ContainsFunc(w.open, func(f ckpt.Finding) bool { return f.SinceSeq != nil })
	tx.Touches(run)
	run.Head = ckpt.Ref(c.ID)
	if err := tx.Exec(`UPDATE runs SET head = ?, updated_at = ? WHERE id = ?`, c.ID, tx.Now, run.ID); err != nil || stays {
		return err
	}
	if err := s.NewStretch(tx, run, c, ckpt.ClosedRestored); err != nil {
		return err
	}
	_, err = s.RetainRun(tx, agent, run, e) // removes what only the head kept
	return err
}

// closeOver closes findings whose rule no longer holds. Checkpoints that are saved from now on are
// clean again; those up to until stay suspect.
func (s *Drifts) closeOver(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, over []ckpt.Finding, until int64) error {
	doubted := false
	for i := range over {
		f := &over[i]
		err := tx.Fill(`UPDATE findings SET closed = 'recovered', closed_at = ?1, until_seq = ?2,
			closed_step = (SELECT steps_ended FROM runs WHERE id = ?3) WHERE id = ?4`, tx.Now, until, run.ID, f.ID)
		doubted = doubted || f.Doubts() && !f.Marks()
		if err != nil {
			return err
		}
		e := ledger.DaemonEntry(agent, "finding")
		e.Run, e.Subject = run.Name, f.ID
		e.Detail = map[string]any{"rule": f.Rule, "severity": f.Severity, "closed": ckpt.ClosedRecovered}
		if err := tx.Audit(e); err != nil {
			return err
		}
	}
	if !doubted {
		return nil
	}
	return markDoubted(tx, run)
}

// Mend closes the open findings of a rule of the store for which over is true.
func (s *Drifts) Mend(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, rule string, over func(evidence ckpt.JSON) bool) error {
	w, err := s.WatchRun(tx, agent, run, nil)
	if err != nil {
		return err
	}
	return s.closeOver(tx, agent, run, w.take(func(f *ckpt.Finding) bool { return f.Rule == rule && over(f.Evidence) }), run.LastSeq)
}

// Dismiss takes back a finding that was wrong or has been dealt with. Checkpoints that were suspect
// only because of it are clean again. Repeating the call changes nothing.
func (s *Drifts) Dismiss(ctx context.Context, sc ckpt.Scope, r ckpt.DismissRequest) (*ckpt.DismissedFinding, bool, error) {
	if err := r.Check(); err != nil {
		return nil, false, err
	}
	f, err := s.findFinding(ctx, sc, r.ID)
	if err != nil {
		s.RefusedBefore(ledger.ChangeEntry(sc, "dismiss_finding", r.ID), err)
		return nil, false, err
	}
	if f.Owner != sc.Caller.Owner {
		sc.Target = f.Owner
	}
	c := s.Screen(sc, f.Agent, "dismissal")
	if c.Text("reason", &r.Reason); c.Err != nil {
		return nil, false, c.Err
	}
	e := ledger.Entry(sc, "dismiss_finding", f.Agent)
	e.Run, e.Subject, e.Reason = f.Run, r.ID, r.Reason
	return Keyed(s, sc, KeyedRequest{Agent: f.Agent, Key: r.IdempotencyKey, Print: r, Entry: e, Drift: true,
		Secrets: c.Found}, func(tx *ledger.Tx, agent *ledger.AgentRow) (*ckpt.DismissedFinding, error) {
		run, err := tx.RunOfRow("findings", r.ID)
		if err != nil || run == nil {
			return nil, ledger.ErrOr(err, noFinding(r.ID))
		}
		if err := s.OwnedHere(run); err != nil {
			return nil, err
		}
		return s.dismiss(tx, sc, agent, run, r.ID, e)
	})
}

// findFinding finds a finding that the scope may see.
func (s *Drifts) findFinding(ctx context.Context, sc ckpt.Scope, id string) (*ckpt.Finding, error) {
	var f ckpt.Finding
	err := s.RO.GetContext(ctx, &f, `SELECT `+FindingColumns+FindingTables+`WHERE f.id = ?`, id)
	if ledger.IsNoRows(err) || err == nil && !ledger.MayRead(sc, f.Owner) {
		return nil, noFinding(id)
	}
	return &f, sqlite.ReadError(err)
}

func noFinding(id string) error {
	return ckpt.Errorf(ckpt.CodeNotFound, "there is no finding %s: list an agent's findings with ckptsidecar drift AGENT --closed", id)
}

func (s *Drifts) dismiss(tx *ledger.Tx, sc ckpt.Scope, agent *ledger.AgentRow, run *ledger.RunRow, id string,
	e ledger.AuditEntry) (*ckpt.DismissedFinding, error) {
	w, err := s.WatchRun(tx, agent, run, nil)
	if err != nil {
		return nil, err
	}
	d := &ckpt.DismissedFinding{Cleaned: []string{}}
	changed, err := tx.ExecCount(`UPDATE findings SET dismissed_at = ?1, dismissed_by = ?2, closed = coalesce(closed, 'dismissed'),
		closed_at = coalesce(closed_at, ?1),
		until_seq = CASE WHEN since_seq IS NULL THEN NULL ELSE coalesce(until_seq, ?3) END WHERE id = ?4 AND run_id = ?5 AND dismissed_at IS NULL`,
		tx.Now, sc.Caller.Owner, run.LastSeq, id, run.ID)
	if err != nil {
		return nil, err
	}
	found, err := tx.Get(&d.Finding, `SELECT `+FindingColumns+FindingTables+`WHERE f.id = ?`, id)
	if err != nil || !found || changed == 0 {
		if err == nil && !found {
			err = noFinding(id)
		}
		return d, err
	}
	w.take(func(f *ckpt.Finding) bool { return f.ID == id })
	w.secrets = slices.DeleteFunc(w.secrets, func(f ckpt.Finding) bool { return f.ID == id })
	if d.Closed == ckpt.Ref(ckpt.ClosedDismissed) { // it was open until now
		s.guardWatch(w, func(watch observer.RunWatch) { watch.Forget(d.Rule) })
	}
	if d.Doubts() {
		if err := cleanAgain(tx, run, &d.Finding, &d.Cleaned); err != nil {
			return nil, err
		}
	}
	e.Detail = map[string]any{"rule": d.Rule, "severity": d.Severity, "cleaned": len(d.Cleaned)}
	if err := tx.Audit(e); err != nil {
		return nil, err
	}
	if _, err = s.keepBack(tx, run, w); err == nil {
		_, err = s.RetainRun(tx, agent, run, e)
	}
	return d, err
}

// cleanAgain clears the suspect mark of the checkpoints that were suspect because of a finding and
// of no other finding that still counts.
func cleanAgain(tx *ledger.Tx, run *ledger.RunRow, f *ckpt.Finding, ids *[]string) error {
	err := tx.List(ids, `SELECT c.id FROM checkpoints c WHERE c.run_id = ?1 AND c.kind IN ('routine', 'pre_operation', 'recovery')
		AND c.suspect = 1 AND (c.seq > ?2 AND c.seq <= ?3 OR EXISTS (SELECT 1 FROM json_each(?4) e
			WHERE c.seq > e.value ->> 'since_seq' AND c.seq <= e.value ->> 'until_seq'))
		AND NOT EXISTS (SELECT 1 FROM suspicions f WHERE f.run_id = ?1
			AND c.seq > f.since_seq AND c.seq <= coalesce(f.until_seq, c.seq)) ORDER BY c.seq`, run.ID, *f.SinceSeq, *f.UntilSeq, f.Earlier)
	for i := 0; err == nil && i < len(*ids); i++ {
		err = tx.Exec(`UPDATE checkpoints SET suspect = 0 WHERE id = ? AND +run_id = ?`, (*ids)[i], run.ID)
	}
	return err
}
