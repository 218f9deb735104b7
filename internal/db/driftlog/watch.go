package driftlog

import (
	"fmt"
	"runtime/debug"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
)

// forgetWatched drops the watches of runs that a transaction has changed without reaching the disk.
func (s *Drifts) forgetWatched(tx *ledger.Tx) {
	for _, id := range tx.Watched {
		s.Watches.drop(id)
	}
}

// WatchRun returns what is kept of a run, and makes it if it is missing. It must be called before
// the run is written to: code that writes afterwards must count its own writes.
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

// watchOf is what is kept of the run that the present operation is about, nil if there is nothing.
func watchOf(tx *ledger.Tx) *Watched {
	w, _ := tx.Watch0.(*Watched)
	return w
}

func (s *Drifts) makeWatched(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, past *past) (*Watched, error) {
	w := &Watched{runID: run.ID, key: blob.RunKey{Owner: agent.Owner, Agent: agent.Name, Run: run.Name}, policy: agent.Policy}
	if err := tx.List(&w.open, openFindings, run.ID); err != nil {
		return w, s.unwatched(w, err)
	}
	if err := tx.List(&w.secrets, openSecrets, run.ID); err != nil {
		return w, s.unwatched(w, err)
	}
	for i := range w.open {
		if f := &w.open[i]; f.Marks() && w.recovery == "" {
			w.recovery = f.Checkpoint
		}
	}
	if s.Opt.Drift == nil || agent.Settings.Sensitivity == ckpt.SensitivityOff {
		return w, nil
	}
	w.partial = past == nil
	now, err := tx.RunByID(run.ID) // the run cache does not know its progress
	if err != nil {
		return w, err
	}
	all, err := readPast(tx, now, w.open, past)
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

// unwatched lets a run continue without a watch if a row of its history is damaged. An error of
// SQLite itself fails the transaction.
func (s *Drifts) unwatched(w *Watched, err error) error {
	if sqlite.Classify(err) != sqlite.ClassNone {
		return err
	}
	s.Log.Error("a run is not watched for drift: its stored data cannot be read", "agent", w.key.Agent, "run", w.key.Run, "error", err)
	return nil
}

// guard keeps a bug in a detector from failing a save: the run continues unwatched until its watch
// is made again.
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

// see shows something to the watch of a run. It returns what the watch found, and takes the open
// findings whose rule no longer holds.
func (s *Drifts) see(run *ledger.RunRow, w *Watched, show func(observer.RunWatch) []observer.Found) (saw Seen) {
	saw.until = run.LastSeq
	over := map[string]bool{}
	s.guardWatch(w, func(watch observer.RunWatch) {
		saw.found = show(watch)
		for i := range w.open {
			if f := &w.open[i]; !f.Posted && !slices.Contains(foundByStore, f.Rule) && watch.Over(f) {
				over[f.ID] = true
			}
		}
	})
	if len(over) > 0 {
		saw.over = w.take(func(f *ckpt.Finding) bool { return over[f.ID] })
	}
	return saw
}

// foundByStore are the rules that no watch knows.
var foundByStore = []string{ckpt.RuleCorruption, ckpt.RuleSharedKeys, ckpt.RuleFilesVanished}

// guardWatch uses the watch of a run, if it has one.
func (s *Drifts) guardWatch(w *Watched, use func(observer.RunWatch)) {
	if w.watch != nil {
		s.guard(w, func() { use(w.watch) })
	}
}

// show publishes the measures of a run whose policy has rules, because rules are tried outside the
// writer.
func (s *Drifts) show(tx *ledger.Tx, agent *ledger.AgentRow, w *Watched) {
	if w.watch == nil || len(agent.Settings.Rules) == 0 {
		return
	}
	var measures map[string]float64
	s.guard(w, func() { measures = w.watch.Measures() })
	tx.OnCommit(func() { s.Watches.shown.Store(w.key, measures) })
}
