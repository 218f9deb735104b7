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
// was replaced, or begins with nothing. from is the checkpoint that the run goes on from, nil for
// none. closing says what closes the findings of the segment before; "" leaves them open, because
// the checkpoint that the run goes on from is suspect.
//
// The rollback target that was kept stays until the run is next written to.
func (s *Drifts) NewStretch(tx *ledger.Tx, run *ledger.RunRow, from *ckpt.Checkpoint, closing ckpt.Closing) error {
	var seq int64
	if from != nil && from.Run == run.Name {
		seq = from.Seq
	}
	s.Watches.drop(run.ID)
	tx.OnCommit(func() { s.Shared.forgetRun(run.ID) })
	tx.Run0, tx.Watch0 = nil, nil
	err := tx.Exec(`UPDATE runs SET stretch = stretch + 1, stretch_seq = last_seq, stretch_from = ?, progress = NULL WHERE id = ?`, seq, run.ID)
	if err != nil {
		return err
	}
	run.Progress = nil
	if run.Stretch++; closing == "" {
		return nil
	}
	return tx.Exec(`UPDATE findings SET closed = ?, closed_at = ?, until_seq = CASE WHEN since_seq IS NULL THEN NULL ELSE ? END
		WHERE run_id = ? AND closed IS NULL AND rule NOT IN ('secret', 'corruption')`, string(closing), tx.Now, run.LastSeq, run.ID)
}

// GoBack makes a restored checkpoint the one that the run goes on from. That begins a new segment,
// unless the checkpoint is the head and no critical finding is open.
func (s *Drifts) GoBack(tx *ledger.Tx, agent *ledger.AgentRow, c *ckpt.Checkpoint, e ledger.AuditEntry) error {
	run, err := tx.Run(agent.ID, c.Run)
	if err != nil || run == nil {
		return err
	}
	if err := s.OwnedHere(run); err != nil {
		return err
	}
	w, err := s.WatchRun(tx, agent, run, nil)
	if err != nil {
		return err
	}
	further := string(run.Head) == c.ID && !w.Drifting()
	run.Head = ckpt.Ref(c.ID)
	if err := tx.Exec(`UPDATE runs SET head = ?, updated_at = ? WHERE id = ?`, c.ID, tx.Now, run.ID); err != nil || further {
		return err
	}
	closing := ckpt.ClosedRestored
	if c.Suspect {
		closing = ""
	}
	if err := s.NewStretch(tx, run, c, closing); err != nil {
		return err
	}
	_, err = s.RetainRun(tx, agent, run, e) // removes what only the head kept
	return err
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
		run, err := tx.Run(agent.ID, f.Run)
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
	w.open = slices.DeleteFunc(w.open, func(f ckpt.Finding) bool { return f.ID == id })
	if !w.Drifting() {
		w.recovery = ""
	}
	if d.Closed == ckpt.Ref(ckpt.ClosedDismissed) { // it was open until now
		s.see(w, func(watch observer.RunWatch) []observer.Found { watch.Forget(d.Rule); return nil })
	}
	if d.Severity == ckpt.SeverityCritical && d.SinceSeq != nil {
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
		AND c.seq > ?2 AND c.seq <= ?3 AND c.suspect = 1
		AND NOT EXISTS (SELECT 1 FROM findings f WHERE f.run_id = ?1 AND f.severity = 'critical' AND f.dismissed_at IS NULL
			AND c.seq > f.since_seq AND c.seq <= coalesce(f.until_seq, c.seq)) ORDER BY c.seq`, run.ID, *f.SinceSeq, *f.UntilSeq)
	for i := 0; err == nil && i < len(*ids); i++ {
		err = tx.Exec(`UPDATE checkpoints SET suspect = 0 WHERE id = ? AND +run_id = ?`, (*ids)[i], run.ID)
	}
	return err
}
