package driftlog

import (
	"database/sql"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
)

// Saved names a checkpoint that is about to be stored.
type Saved struct {
	ID   string
	Seq  int64
	Size int64 // bytes of its state
}

// SeeState shows a state that is about to be stored to the watch of its run.
func (s *Drifts) SeeState(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, w *Watched, p *Printed, r *ckpt.SaveRequest, at Saved) (saw Seen) {
	mended := w.take(func(f *ckpt.Finding) bool { return f.Rule == ckpt.RuleCorruption && !f.Posted }) // this state is stored whole
	if p == nil {
		return Seen{over: mended, until: run.LastSeq}
	}
	print := p.state
	print.ID, print.Seq, print.At, print.Kind, print.Size = at.ID, at.Seq, tx.Now.Time, r.Kind, at.Size
	_, print.Compacted = r.Labels[ckpt.LabelCompaction]
	saw = s.see(run, w, func(watch observer.RunWatch) []observer.Found { return watch.State(print) })
	saw.over = append(saw.over, mended...)
	s.show(tx, agent, w)
	return saw
}

// FoundInState writes what the watch saw in a state, when the state is stored as checkpoint id. It says whether a finding was critical:
// clean checkpoints have become suspect.
func (s *Drifts) FoundInState(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, w *Watched, saw Seen, id string) (critical bool, err error) {
	if critical, err = s.find(tx, agent, run, w, saw, id); err != nil {
		return false, err
	}
	_, err = s.keepBack(tx, run, w)
	return critical, err
}

// WatchStep shows a step that has ended to the run's watch, notes its owner's sign of life, and
// handles what the watch found.
func (s *Drifts) WatchStep(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, w *Watched,
	printed *printedStep, step *ckpt.Step, old *ledger.StepRow, e ledger.AuditEntry) error {
	if step.Status == ckpt.StepStarted {
		return tx.SignOfLife(run)
	}
	critical := false
	if printed != nil {
		print := printed.ended(step, old, run, tx.Now.Time)
		saw := s.see(run, w, func(watch observer.RunWatch) []observer.Found { return watch.Step(print) })
		var err error
		if critical, err = s.find(tx, agent, run, w, saw, ""); err != nil {
			return err
		}
		s.show(tx, agent, w)
	}
	err := tx.Exec(ledger.UpdateStepped, tx.Now, used(step.InputTokens), used(step.OutputTokens), used(step.CostUSD), run.ID)
	if err != nil {
		return err
	}
	return s.retainAfter(tx, agent, run, w, critical, e)
}

// WatchCall shows a call that was answered with the result of an earlier one to the run's watch: it
// counts as made.
func (s *Drifts) WatchCall(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, w *Watched, old *ledger.StepRow, e ledger.AuditEntry) error {
	print := observer.StepPrint{Key: old.Key, Tool: old.Name, Sig: string(old.Sig), Res: string(old.Res), Shape: string(old.Shape),
		Effect: string(old.Effect), Negative: old.Outcome != "", Began: tx.Now.Time, At: tx.Now.Time, AfterSeq: run.LastSeq}
	saw := s.see(run, w, func(watch observer.RunWatch) []observer.Found { return watch.Step(print) })
	critical, err := s.find(tx, agent, run, w, saw, "")
	if err != nil {
		return err
	}
	if err := tx.SignOfLife(run); err != nil {
		return err
	}
	return s.retainAfter(tx, agent, run, w, critical, e)
}

// retainAfter notes where the way back begins, and lets retention look again if that moved or if there
// is a critical finding.
func (s *Drifts) retainAfter(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, w *Watched, critical bool, e ledger.AuditEntry) error {
	moved, err := s.keepBack(tx, run, w)
	if err != nil || !critical && !moved {
		return err
	}
	_, err = s.RetainRun(tx, agent, run, e)
	return err
}

// WatchBeat tells the run's watch that time has passed, and handles what the watch found.
func (s *Drifts) WatchBeat(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, w *Watched, progress *float64) error {
	saw := s.see(run, w, func(watch observer.RunWatch) []observer.Found { return watch.Beat(tx.Now.Time, progress) })
	if !saw.Any() {
		return nil
	}
	critical, err := s.find(tx, agent, run, w, saw, "")
	if err != nil || !critical {
		return err
	}
	_, err = s.RetainRun(tx, agent, run, ledger.DaemonEntry(agent, "remove"))
	return err
}

// used is the usage that a step reports, limited to a range that can be summed.
func used[N int64 | float64](n *N) N {
	if n == nil || !(*n > 0) {
		return 0
	}
	return min(*n, 1e12)
}

// keepBack stores the position up to which a rollback target must be kept, if it has changed.
func (s *Drifts) keepBack(tx *ledger.Tx, run *ledger.RunRow, w *Watched) (moved bool, err error) {
	if moved, err = s.moveBack(tx, run, w); err != nil || !moved {
		return false, err
	}
	tx.Store.RunCache.Forget(run)
	return true, tx.Exec(ledger.UpdateBack, run.BackSeq, run.ID)
}

// wanted is the position up to which a rollback target must be kept: before evidence that may become
// critical, and before that of open warnings about the state.
func (s *Drifts) wanted(w *Watched) (back sql.NullInt64) {
	s.guardWatch(w, func(watch observer.RunWatch) { back.Int64, back.Valid = watch.Back() })
	for i := range w.open {
		if f := &w.open[i]; f.Doubts() && !f.Marks() && (!back.Valid || *f.SinceSeq < back.Int64) {
			back = sql.NullInt64{Int64: *f.SinceSeq, Valid: true}
		}
	}
	return back
}

// BackMoves says whether moveBack would change something, without a query to the database.
func (s *Drifts) BackMoves(run *ledger.RunRow, w *Watched) bool {
	back := s.wanted(w)
	return back.Valid != run.BackSeq.Valid || back.Valid && back != w.asked
}

// moveBack asks the watch for the position up to which a rollback target must be kept, and says
// whether it has changed.
func (s *Drifts) moveBack(tx *ledger.Tx, run *ledger.RunRow, w *Watched) (moved bool, err error) {
	back := s.wanted(w)
	switch {
	case !back.Valid:
		back = sql.NullInt64{}
	case run.BackSeq.Valid && w.asked == back:
		return false, nil
	}
	if w.asked = back; back.Valid {
		if back.Int64, err = reachable(tx, run, back.Int64); err != nil {
			return false, err
		}
	}
	moved = back != run.BackSeq
	run.BackSeq = back
	return moved, nil
}

// reachable is the position up to which a rollback target can be kept. Retention may have removed
// all checkpoints from before the first sign of drift, because one sign alone keeps none. Then the
// oldest clean checkpoint that was left at the second sign must serve.
func reachable(tx *ledger.Tx, run *ledger.RunRow, back int64) (int64, error) {
	var oldest sql.NullInt64
	_, err := tx.Get(&oldest, `SELECT min(seq) FROM (
		SELECT seq FROM (SELECT seq FROM checkpoints WHERE run_id = ?1 AND kind = 'routine' AND suspect = 0 ORDER BY seq LIMIT 1)
		UNION ALL SELECT seq FROM (SELECT seq FROM checkpoints WHERE run_id = ?1 AND kind = 'pre_operation' AND suspect = 0
		ORDER BY seq LIMIT 1)
		UNION ALL SELECT seq FROM (SELECT seq FROM checkpoints WHERE run_id = ?1 AND kind = 'recovery' AND suspect = 0
		ORDER BY seq LIMIT 1))`, run.ID)
	switch {
	case err != nil || !oldest.Valid || oldest.Int64 <= back:
		return back, err
	case run.BackSeq.Valid && run.BackSeq.Int64 >= oldest.Int64:
		return run.BackSeq.Int64, nil
	}
	return oldest.Int64, nil
}

// VerdictFor is the verdict on the run that an operation was about.
func (s *Drifts) VerdictFor(tx *ledger.Tx, agent *ledger.AgentRow, name string) (*ckpt.DriftVerdict, error) {
	run, w := tx.Run0, watchOf(tx)
	if w == nil {
		var err error
		if run, err = tx.Run(agent.ID, name); err != nil || run == nil {
			return verdictOf(nil), err
		}
		if w, err = s.WatchRun(tx, agent, run, nil); err != nil {
			return nil, err
		}
	}
	return s.Verdict(tx, run, w)
}

// setDrift puts a verdict into a reply that has a place for it.
func setDrift(answer any, v *ckpt.DriftVerdict) {
	switch a := answer.(type) {
	case *ckpt.Step:
		a.Drift = v
	case *ckpt.Run:
		a.Drift = v
	case *ckpt.Operation:
		a.Drift = v
	case *ckpt.PostedFinding:
		a.Drift = v
	case *ckpt.DismissedFinding:
		a.Drift = v
	}
}
