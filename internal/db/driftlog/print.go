package driftlog

import (
	"context"
	"strconv"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/jmoiron/sqlx"
)

// Printed is what was prepared from a state outside the writer, for the detectors.
type Printed struct {
	state   observer.StatePrint
	past    *past
	Refused error             // the state breaks the agent's schema, and the policy refuses that
	shared  map[string]string // hashes of the values at the policy's shared keys, by pointer
}

// PrintState prepares what the detectors need of a state, and refuses a state that breaks the
// agent's schema. It runs in the caller's goroutine, and returns an error if the caller no longer
// waits for the reply.
func (s *Drifts) PrintState(ctx context.Context, key blob.RunKey, r *ckpt.SaveRequest, e *blob.Encoded) (*Printed, error) {
	if s.Opt.Drift == nil {
		return nil, nil
	}
	p := s.PolicyOf(key.Owner, key.Agent)
	if p.Sensitivity == ckpt.SensitivityOff {
		return nil, nil
	}
	run, previous, release := s.ruleRun(key, &p, true)
	defer release()
	run.Map = e.Known.JSON
	made := &Printed{past: s.readAhead(key, &p)}
	err := preparing(ctx, &p, func(ctx context.Context) (err error) {
		made.state, err = makePrint(s, key, func() (observer.StatePrint, error) {
			return s.Opt.Drift.State(ctx, &p, run, e.State, previous, r.ContentType)
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	if p.SchemaMode == ckpt.SchemaRefuse && p.Detectors[ckpt.RuleSchema].Tier != ckpt.TierOff {
		made.Refused = refusedBySchema(made.state.Broken)
	}
	if ckpt.IsJSON(r.ContentType) {
		made.shared = SharedValues(e.State, e.Known.JSON, p.SharedKeys)
	}
	return made, nil
}

// refusedBySchema is the refusal of a state, nil if the state breaks no schema.
func refusedBySchema(broken []observer.Found) error {
	for i := range broken {
		f := &broken[i]
		if f.Rule != ckpt.RuleSchema {
			continue
		}
		where := ""
		if at := f.Evidence.Pointer; at != "" && !strings.Contains(f.Message, at) {
			where = " It begins at " + strconv.Quote(at) + "."
		}
		message := strings.TrimRight(f.Message, ".")
		if message == "" {
			message = "The state does not match the agent's schema"
		}
		return ckpt.Errorf(ckpt.CodeSchemaMismatch,
			"%s.%s Nothing was saved: correct the state or the schema in the agent's policy, or set its schema_mode to report",
			strings.ToLower(message[:1])+message[1:], where)
	}
	return nil
}

// ruleRun is what the user's own rules see besides the step or the state. If the policy has no
// rules, it costs nothing.
func (s *Drifts) ruleRun(key blob.RunKey, p *ckpt.Policy, forState bool) (r observer.RuleRun, previous []byte, release func()) {
	r, release = observer.RuleRun{Agent: key.Agent, Run: key.Run}, func() {}
	if len(p.Rules) == 0 {
		return r, nil, release
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.Opt.WriteTimeout)
	defer cancel()
	err := s.Reading(ctx, func(q *sqlx.Tx) error {
		row, err := readRuleRun(ctx, q, key, &r)
		if err != nil || row.ID == 0 || !forState {
			return err
		}
		if r.Last, err = readLastStep(ctx, q, row.ID); err != nil {
			return err
		}
		if row.LastSeq <= row.StretchSeq { // nothing was saved since the run began, went back, or was taken over
			previous, err = readStateAt(ctx, q, row.ID, row.StretchFrom)
			return err
		}
		if base := s.States.Get(key); base != nil {
			if base.RunID == row.ID && base.Seq == row.LastSeq {
				previous, release = base.State, func() { s.States.Release(base) }
				return nil
			}
			s.States.Release(base) // small states came after it
		}
		previous, err = readPrevious(ctx, q, row.ID)
		return err
	})
	if err != nil {
		s.Log.Warn("the agent's own rules run without the run's history", "agent", key.Agent, "run", key.Run, "error", err)
	}
	if shown, ok := s.Watches.shown.Load(key); ok {
		r.Measures = shown.(map[string]float64)
	}
	return r, previous, release
}

// ruleRow is what the user's own rules need of a run's row. Its ID is 0 if there is no run.
type ruleRow struct {
	ID          int64    `db:"id"`
	Status      string   `db:"status"`
	Goal        ckpt.Ref `db:"goal"`
	Attempt     int64    `db:"attempt"`
	Steps       int64    `db:"steps_ended"`
	Progress    *float64 `db:"progress"`
	LastSeq     int64    `db:"last_seq"`
	StretchSeq  int64    `db:"stretch_seq"`
	StretchFrom int64    `db:"stretch_from"`
}

func readRuleRun(ctx context.Context, q *sqlx.Tx, key blob.RunKey, r *observer.RuleRun) (row ruleRow, err error) {
	err = q.GetContext(ctx, &row, `SELECT r.id, r.status, r.goal, r.attempt, r.steps_ended, r.progress, r.last_seq, r.stretch_seq, r.stretch_from
		FROM runs r JOIN agents a ON a.id = r.agent_id WHERE a.owner = ? AND a.name = ? AND r.name = ?`, key.Owner, key.Agent, key.Run)
	if ledger.IsNoRows(err) {
		return row, nil
	}
	r.Status, r.Goal, r.Attempt, r.Steps, r.Progress = row.Status, string(row.Goal), row.Attempt, row.Steps, row.Progress
	return row, err
}

func readLastStep(ctx context.Context, q *sqlx.Tx, runID int64) (*ckpt.Step, error) {
	var row ledger.StepRow
	err := q.GetContext(ctx, &row, `SELECT `+ledger.StepColumns+
		` FROM steps WHERE run_id = ? AND status IN ('succeeded', 'failed') ORDER BY after_seq DESC, id DESC LIMIT 1`, runID)
	if ledger.IsNoRows(err) {
		return nil, nil
	}
	return &row.Step, err
}

// previousMost is the size of the largest state that is read only so that rules can compare with
// it.
const previousMost = 1 << 20

// readPrevious reads the run's newest state.
func readPrevious(ctx context.Context, q *sqlx.Tx, runID int64) ([]byte, error) {
	return readState(ctx, q, `slot = (SELECT slot FROM (`+newestOfRun+`) ORDER BY seq DESC LIMIT 1) AND size <= ?3`, runID, 1, previousMost)
}

// readStateAt reads the state of one of the run's checkpoints, nil for 0.
func readStateAt(ctx context.Context, q *sqlx.Tx, runID, seq int64) ([]byte, error) {
	if seq == 0 {
		return nil, nil
	}
	return readState(ctx, q, `run_id = ? AND kind IN ('routine', 'pre_operation', 'recovery') AND seq = ? AND size <= ?`, runID, seq, previousMost)
}

// readState reads the state of a checkpoint. A damaged state counts as none.
func readState(ctx context.Context, q *sqlx.Tx, where string, args ...any) ([]byte, error) {
	var row blob.StateRow
	err := q.GetContext(ctx, &row, `SELECT n, id, size, sha256, body, pieces FROM checkpoints WHERE `+where, args...)
	if ledger.IsNoRows(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	state, err := blob.Decode(ctx, q, &row)
	if ckpt.CodeOf(err) == ckpt.CodeCorrupt {
		return nil, nil
	}
	return state, err
}

// printedStep is what was prepared from a step outside the writer. If the step began in an earlier
// request, it has only the end; the rest was stored then.
type printedStep struct {
	print observer.StepPrint
	past  *past
	whole bool
}

// PrintStep prepares what the detectors need of a step, nil if drift is not watched.
func (s *Drifts) PrintStep(ctx context.Context, key blob.RunKey, r *ckpt.StepRequest, finish bool) (*printedStep, error) {
	if s.Opt.Drift == nil {
		return nil, nil
	}
	p := s.PolicyOf(key.Owner, key.Agent)
	if p.Sensitivity == ckpt.SensitivityOff {
		return nil, nil
	}
	step := ckpt.Step{Key: r.Key, Name: r.Name, Args: r.Args, Status: r.Status, Result: r.Result, Error: r.Error,
		Outcome: r.Outcome, Measures: r.Measured()}
	made := &printedStep{past: s.readAhead(key, &p), whole: !finish}
	if r.Status == "" || r.Status == ckpt.StepStarted { // it only begins: rules are tried at its end
		p.Rules = nil
	}
	run, _, _ := s.ruleRun(key, &p, false)
	if finish && (len(p.Rules) > 0 || r.Status == ckpt.StepFailed) { // its arguments show which words of the error are its own
		made.whole = s.readBegun(key, &step)
	}
	err := preparing(ctx, &p, func(ctx context.Context) (err error) {
		made.print, err = makePrint(s, key, func() (observer.StepPrint, error) { return s.Opt.Drift.Step(ctx, &p, run, &step) })
		return err
	})
	return made, err
}

// readBegun completes the end of a step with its beginning, for the user's own rules.
func (s *Drifts) readBegun(key blob.RunKey, step *ckpt.Step) bool {
	ctx, cancel := context.WithTimeout(context.Background(), s.Opt.WriteTimeout)
	defer cancel()
	var row ledger.StepRow
	err := s.RO.GetContext(ctx, &row, `SELECT s.id, s.key, s.name, s.args, s.status, s.attempt, s.started_at FROM steps s
		JOIN runs r ON r.id = s.run_id JOIN agents a ON a.id = r.agent_id
		WHERE a.owner = ? AND a.name = ? AND r.name = ? AND s.key = ?`, key.Owner, key.Agent, key.Run, step.Key)
	if err != nil {
		return false
	}
	step.Name, step.Args, step.Attempt, step.StartedAt = row.Name, row.Args, row.Attempt, row.StartedAt
	return true
}

// PastOf is what was read of the run's history, nil if that was not needed.
func (p *printedStep) PastOf() *past {
	if p == nil {
		return nil
	}
	return p.past
}

// Past is what was read of the run's history, nil if that was not needed.
func (p *Printed) Past() *past {
	if p == nil {
		return nil
	}
	return p.past
}

// Shared returns the hashes of the values on which agents must agree.
func (p *Printed) Shared() map[string]string {
	if p == nil {
		return nil
	}
	return p.shared
}

// Stored is the part of a fingerprint that is stored with the step.
func (p *printedStep) Stored() *observer.StepPrint {
	if p == nil {
		return &observer.StepPrint{}
	}
	return &p.print
}

// ended completes the fingerprint of a step with what only the writer knows.
func (p *printedStep) ended(step *ckpt.Step, old *ledger.StepRow, run *ledger.RunRow, now time.Time) observer.StepPrint {
	print := p.print
	if !p.whole && old != nil {
		print.Sig, print.Shape, print.Effect = string(old.Sig), string(old.Shape), string(old.Effect)
	}
	print.Began, print.Turn = step.StartedAt.Time, string(step.Turn)
	print.Key, print.Tool, print.At, print.AfterSeq, print.Measures = step.Key, step.Name, now, run.LastSeq, step.Measures
	return print
}
