package driftlog

import (
	"bytes"
	"encoding/json"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
)

// DeclareGoal shows a goal that was declared at the start of a run to the run's watch, and handles
// what the watch found.
func (s *Drifts) DeclareGoal(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, goal ckpt.Ref, e ledger.AuditEntry) error {
	if goal == "" {
		return nil
	}
	w, err := s.WatchRun(tx, agent, run, nil)
	if err != nil {
		return err
	}
	if err := tx.Update(`UPDATE runs SET goal = ?, first_goal = coalesce(first_goal, ?) WHERE id = ?`, goal, goal, run.ID); err != nil {
		return err
	}
	return s.hearGoal(tx, agent, run, w, string(goal), false, e)
}

func (s *Drifts) hearGoal(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, w *Watched, goal string,
	updated bool, e ledger.AuditEntry) error {
	saw := s.see(run, w, func(watch observer.RunWatch) []observer.Found { return watch.Goal(tx.Now.Time, goal, updated) })
	critical, err := s.find(tx, agent, run, w, saw, "")
	if err != nil || !critical {
		return err
	}
	_, err = s.RetainRun(tx, agent, run, e)
	return err
}

// Enter shows the events of a batch that tell of a loop's states and edges to the run's watch.
func (s *Drifts) Enter(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, events []ckpt.NewEvent, e ledger.AuditEntry) error {
	for i := range events {
		var payload struct {
			State  string           `json:"state"`
			Counts map[string]int64 `json:"edge_revisit_counts"`
		}
		isEnter := events[i].Type == ckpt.EventStateEnter
		if !isEnter && !bytes.Contains(events[i].Payload, []byte(ckpt.EventEdgeRevisitCounts)) && events[i].Type != ckpt.EventEdgeRevisitCounts {
			continue
		}
		if json.Unmarshal(events[i].Payload, &payload) != nil {
			continue // a payload in another form tells of no edges
		}
		if payload.Counts == nil && events[i].Type == ckpt.EventEdgeRevisitCounts {
			_ = json.Unmarshal(events[i].Payload, &payload.Counts) // the counts themselves
		}
		if !isEnter {
			payload.State = ""
		}
		if payload.State == "" && payload.Counts == nil {
			continue
		}
		w, err := s.WatchRun(tx, agent, run, nil)
		if err != nil {
			return err
		}
		saw := s.see(run, w, func(watch observer.RunWatch) []observer.Found {
			return watch.Enter(tx.Now.Time, payload.State, payload.Counts)
		})
		critical, err := s.find(tx, agent, run, w, saw, "")
		if err == nil && critical {
			_, err = s.RetainRun(tx, agent, run, e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// UpdateGoal handles the events of a batch that change the run's goal: to the goal that they name,
// or to the next goal that is declared.
func (s *Drifts) UpdateGoal(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, events []ckpt.NewEvent, e ledger.AuditEntry) error {
	for i := range events {
		if events[i].Type != ckpt.EventGoalUpdate {
			continue
		}
		var payload struct {
			Goal string `json:"goal"`
		}
		_ = json.Unmarshal(events[i].Payload, &payload) // a payload that cannot be read names no goal
		if payload.Goal == "" || len(payload.Goal) > ckpt.MaxText {
			s.Watches.drop(run.ID)
			if err := tx.Exec(`UPDATE runs SET first_goal = NULL WHERE id = ?`, run.ID); err != nil {
				return err
			}
			continue
		}
		w, err := s.WatchRun(tx, agent, run, nil)
		if err != nil {
			return err
		}
		if err := tx.Update(`UPDATE runs SET goal = ?, first_goal = ? WHERE id = ?`, payload.Goal, payload.Goal, run.ID); err != nil {
			return err
		}
		if err := tx.IndexRun(run.ID); err != nil {
			return err
		}
		if err := s.hearGoal(tx, agent, run, w, payload.Goal, true, e); err != nil {
			return err
		}
	}
	return nil
}
