package driftlog

import (
	"fmt"
	"runtime/debug"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
)

// forgetWatched throws away what a transaction has changed that is not on disk.
func (s *Drifts) forgetWatched(tx *ledger.Tx) {
	for _, id := range tx.Watched {
		s.Watches.drop(id)
	}
}

// WatchRun answers what is kept of a run, made where it is missing. It must be asked
// for before the run is written to: what is written afterwards is counted by
// whoever writes it.
func (s *Drifts) WatchRun(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, past *past) (*Watched, error) {
	if n := len(tx.Watched); n == 0 || tx.Watched[n-1] != run.ID {
		tx.Watched = append(tx.Watched, run.ID)
	}
	w := s.Watches.get(run.ID)
	if w == nil || w.policy != agent.Policy || w.partial && past != nil {
		var err error
		if w, err = s.makeWatched(tx, agent, run, past); err != nil {
			return nil, err
		}
		s.Watches.put(w)
	}
	tx.Run0, tx.Watch0 = run, w
	return w, nil
}

// watchOf is what is kept of the run that the present operation is about, nil
// where nothing is.
func watchOf(tx *ledger.Tx) *Watched {
	w, _ := tx.Watch0.(*Watched)
	return w
}

func (s *Drifts) makeWatched(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, past *past) (*Watched, error) {
	w := &Watched{runID: run.ID, key: blob.RunKey{Owner: agent.Owner, Agent: agent.Name, Run: run.Name}, policy: agent.Policy}
	err := tx.List(&w.open, `SELECT `+FindingColumns+FindingTables+`WHERE f.run_id = ? AND f.closed IS NULL ORDER BY f.at, f.id`, run.ID)
	if err != nil {
		return w, s.unwatched(w, err)
	}
	for i := range w.open {
		if f := &w.open[i]; f.Severity == ckpt.SeverityCritical && f.SinceSeq != nil && w.recovery == "" {
			w.recovery = f.Checkpoint
		}
	}
	if s.Opt.Drift == nil || agent.Settings.Sensitivity == ckpt.SensitivityOff {
		return w, nil
	}
	w.partial = past == nil
	all, err := readPast(tx, run, w.open, past)
	if err != nil {
		return w, s.unwatched(w, err)
	}
	if agent.Settings.FalseAlarms > 0 {
		var workflow ckpt.Ref
		if _, err := tx.Get(&workflow, `SELECT workflow FROM runs WHERE id = ?`, run.ID); err != nil {
			return w, err
		}
		all.Calibration = *s.calibrationOf(agent, string(workflow))
	}
	s.guard(w, func() { w.watch = s.Opt.Drift.Watch(&agent.Settings, *all) })
	return w, nil
}

// unwatched lets a run go on without a watch where a row of its past is
// damaged. What is SQLite's own fault is the transaction's.
func (s *Drifts) unwatched(w *Watched, err error) error {
	if sqlite.Classify(err) != sqlite.ClassNone {
		return err
	}
	s.Log.Error("a run is not watched for drift: its stored data cannot be read", "agent", w.key.Agent, "run", w.key.Run, "error", err)
	return nil
}

// guard keeps a mistake in a detector from reaching a save: the run goes on
// unwatched until what is known of it is made anew.
func (s *Drifts) guard(w *Watched, f func()) {
	defer func() {
		if p := recover(); p != nil {
			w.watch = nil
			s.Watches.Panics.Add(1)
			s.Log.Error("a drift detector panicked: the run is no longer watched", "agent", w.key.Agent, "run",
				w.key.Run, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	f()
}

// see lets the watch of a run see something, and answers what it found.
func (s *Drifts) see(w *Watched, show func(observer.RunWatch) []observer.Found) (found []observer.Found) {
	if w.watch == nil {
		return nil
	}
	s.guard(w, func() { found = show(w.watch) })
	return found
}

// show publishes the measures of a run whose policy has rules: those are tried
// outside the writer.
func (s *Drifts) show(tx *ledger.Tx, agent *ledger.AgentRow, w *Watched) {
	if w.watch == nil || len(agent.Settings.Rules) == 0 {
		return
	}
	var measures map[string]float64
	s.guard(w, func() { measures = w.watch.Measures() })
	tx.OnCommit(func() { s.Watches.shown.Store(w.key, measures) })
}
