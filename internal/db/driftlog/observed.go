package driftlog

import (
	"context"
	"slices"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
)

// PrintObserved makes the fingerprint of an observed step. It does not try the agent's own rules,
// because the agent is not known yet. ok is false if drift is not watched.
func (s *Drifts) PrintObserved(ctx context.Context, step *ckpt.Step) (print observer.StepPrint, ok bool) {
	if s.Opt.Drift == nil {
		return print, false
	}
	p := ckpt.DefaultPolicy()
	print, err := makePrint(s, blob.RunKey{}, func() (observer.StepPrint, error) {
		return s.Opt.Drift.Step(ctx, &p, observer.RuleRun{}, step)
	})
	return print, err == nil
}

// Told says how an observed step is shown to the detectors.
type Told int

// The values of Told.
const (
	InOrder Told = iota // a step at its place in the order
	Late                // a step whose place in the order has passed
	Usage               // not a step: the usage of a model
)

// SeeObserved shows an observed step to a run's watch, and handles what the watch found. Such a run
// has no checkpoints, so nothing has to be kept or marked.
func (s *Drifts) SeeObserved(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, w *Watched,
	print observer.StepPrint, told Told, partial bool) error {
	saw := s.see(run, w, func(watch observer.RunWatch) []observer.Found {
		if told == InOrder {
			return watch.Step(print)
		}
		return watch.Spend(print, told == Late)
	})
	saw.found = slices.DeleteFunc(saw.found, func(f observer.Found) bool { return f.Rule == ckpt.RuleBlindSteps }) // the report says what is unseen
	for i := range saw.found {
		if f := &saw.found[i]; partial && f.Evidence.Threshold != "" && f.Rule == ruleBudget {
			f.Message = "Parts of this run were not sent, so it used at least this much. " + f.Message
		}
	}
	_, err := s.find(tx, agent, run, w, saw, "")
	return err
}

// ruleBudget is the rule whose numbers are too low if spans are left out.
const ruleBudget = "budget"

// The rules that need data that an observed run may not send: its calls and their results, and data
// that no span has, such as states, progress and goals.
var (
	unseenWithoutCalls   = []string{"churn"}
	unseenWithoutPairs   = []string{"cycle", "repeat"}
	unseenWithoutResults = []string{"stale", "unparsable_result"}
	neverSeen            = []string{"checkpoint_size", "context_age", "counter_reversed", "goal_changed", "lost_keys", "no_progress",
		"progress_reversed", "schema", "shared_keys", "stale_checkpoint", "type_changed"}
)

// readUnseen says which rules can see nothing in an observed run. An error of a tool stands for a
// result, so only successful calls show whether results are sent. A rule that has found something
// sees.
func readUnseen(ctx context.Context, q *sqlx.Tx, runID int64, report *ckpt.DriftReport) error {
	var said struct {
		Calls   bool `db:"calls"`
		Results bool `db:"results"`
	}
	err := q.GetContext(ctx, &said, `SELECT EXISTS (SELECT 1 FROM steps WHERE run_id = ?1 AND sig <> ?2) AS calls,
		EXISTS (SELECT 1 FROM steps WHERE run_id = ?1 AND res IS NOT NULL AND status = 'succeeded') AS results`, runID, observer.UnknownCall)
	if err != nil {
		return err
	}
	var found []string
	if err := q.SelectContext(ctx, &found, `SELECT DISTINCT rule FROM findings WHERE run_id = ?`, runID); err != nil {
		return err
	}
	report.Unseen = slices.Clone(neverSeen)
	if !said.Calls {
		report.Unseen = append(report.Unseen, unseenWithoutCalls...)
	}
	if !said.Calls || !said.Results {
		report.Unseen = append(report.Unseen, unseenWithoutPairs...)
	}
	if !said.Results {
		report.Unseen = append(report.Unseen, unseenWithoutResults...)
	}
	report.Unseen = slices.DeleteFunc(report.Unseen, func(rule string) bool { return slices.Contains(found, rule) })
	slices.Sort(report.Unseen)
	return nil
}
