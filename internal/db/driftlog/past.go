package driftlog

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/jmoiron/sqlx"
)

// past is the part of a run's history that is read and prepared outside the writer.
type past struct {
	states   map[string]observer.StatePrint // by checkpoint
	baseline []observer.StepPrint
}

// The bounds of what is read outside the writer.
const (
	pastStates     = 5       // the newest states of a run that get new fingerprints; of older ones only the size counts
	pastStateBytes = 8 << 20 // a larger state is not read for this
	baselineRuns   = 4       // an agent's oldest runs, from which the baselines are taken
	baselineSteps  = 500     // of each run
)

// readAhead reads what the writer will need to begin to watch a run. It returns nil if the run is
// watched already or drift is not watched. No other caller waits for these reads.
func (s *Drifts) readAhead(key blob.RunKey, p *ckpt.Policy) *past {
	if s.Opt.Drift == nil || p.Sensitivity == ckpt.SensitivityOff {
		return nil
	}
	if _, ready := s.Watches.ready.Load(key); ready {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.Opt.WriteTimeout)
	defer cancel()
	made := &past{states: map[string]observer.StatePrint{}}
	err := s.Reading(ctx, func(q *sqlx.Tx) error {
		var run struct {
			ID      int64 `db:"id"` // 0 if it is new
			AgentID int64 `db:"agent_id"`
		}
		err := q.GetContext(ctx, &run, `SELECT coalesce((SELECT id FROM runs WHERE agent_id = a.id AND name = ?), 0) AS id,
			a.id AS agent_id FROM agents a WHERE a.owner = ? AND a.name = ?`,
			key.Run, key.Owner, key.Agent)
		if ledger.IsNoRows(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if made.baseline, err = readBaseline(ctx, q, run.AgentID); err != nil || run.ID == 0 {
			return err
		}
		return s.printStates(ctx, q, key, p, run.ID, made)
	})
	if err != nil { // the run is still watched, with less memory
		s.Log.Warn("the drift detectors cannot read a run's history", "agent", key.Agent, "run", key.Run, "error", err)
	}
	return made
}

// printStates makes the fingerprints of a run's newest states.
func (s *Drifts) printStates(ctx context.Context, q *sqlx.Tx, key blob.RunKey, p *ckpt.Policy, runID int64, made *past) error {
	type row struct {
		blob.StateRow
		ContentType string `db:"content_type"`
	}
	var rows []row
	for _, kind := range ckpt.Kinds {
		var some []row
		err := q.SelectContext(ctx, &some, `SELECT n, id, size, sha256, body, pieces, content_type`+ofRunAndKind(kind), runID, pastStates)
		if err != nil {
			return err
		}
		rows = append(rows, some...)
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(b.N, a.N) })
	rows = rows[:min(len(rows), pastStates)]
	rows = slices.DeleteFunc(rows, func(r row) bool { return r.Size > pastStateBytes })
	plain := *p // rules and schema already judged these when they were saved
	plain.Rules, plain.Schema = nil, nil
	for i := range rows {
		state, err := blob.Decode(ctx, q, &rows[i].StateRow)
		if err != nil {
			continue // a caller that reads it gets the error
		}
		made.states[rows[i].ID], _ = makePrint(s, key, func() (observer.StatePrint, error) {
			return s.Opt.Drift.State(context.Background(), &plain, observer.RuleRun{Agent: key.Agent, Run: key.Run}, state, nil, rows[i].ContentType)
		})
	}
	return nil
}

// ofRunAndKind selects the newest checkpoints of one kind of a run, newest first. ?1 is the run, ?2
// how many. The kind is in the text, because there are indexes for single kinds: with a parameter,
// SQLite would prepare the statement again for each kind.
func ofRunAndKind(kind ckpt.Kind) string {
	return ` FROM checkpoints WHERE run_id = ?1 AND kind = '` + string(kind) + `' ORDER BY seq DESC LIMIT 0 + ?2`
}

// newestOfRun selects the numbers of the newest checkpoints of a run, of each kind. ?1 is the run,
// ?2 how many.
const newestOfRun = `SELECT slot, seq FROM (SELECT slot, seq FROM checkpoints WHERE run_id = ?1 AND kind = 'routine' ORDER BY seq DESC LIMIT 0 + ?2)
	UNION ALL SELECT slot, seq FROM (SELECT slot, seq FROM checkpoints WHERE run_id = ?1 AND kind = 'pre_operation' ORDER BY seq DESC LIMIT 0 + ?2)
	UNION ALL SELECT slot, seq FROM (SELECT slot, seq FROM checkpoints WHERE run_id = ?1 AND kind = 'recovery' ORDER BY seq DESC LIMIT 0 + ?2)`

// readBaseline reads the first steps of each tool and shape of an agent, from its oldest runs.
func readBaseline(ctx context.Context, q sqlx.QueryerContext, agentID int64) ([]observer.StepPrint, error) {
	var runs []int64
	err := sqlx.SelectContext(ctx, q, &runs, `SELECT id FROM (SELECT id FROM runs WHERE agent_id = ? ORDER BY id LIMIT 0 + ?) r
		WHERE EXISTS (SELECT 1 FROM steps WHERE run_id = r.id)`, agentID, baselineRuns)
	if err != nil {
		return nil, err
	}
	var list []observer.StepPrint
	of := map[[2]string]int{}
	for _, id := range runs {
		steps, err := readPrints(ctx, q, `SELECT `+printColumns+
			` FROM steps WHERE run_id = ? AND sig IS NOT NULL AND ended_at IS NOT NULL ORDER BY after_seq, id LIMIT 0 + ?`, id, baselineSteps)
		if err != nil {
			return nil, err
		}
		for _, step := range steps {
			kind := [2]string{step.Tool, step.Shape}
			if of[kind]++; of[kind] <= observer.MaxBaseline {
				list = append(list, step.StepPrint)
			}
		}
	}
	return list, nil
}

// printRow is the stored form of a step for the detectors.
type printRow struct {
	observer.StepPrint
	id, failures, stretch int64
	calls, callsIn        int64
	called                time.Time
}

const printColumns = `id, key, name, coalesce(sig, ''), coalesce(res, ''), coalesce(cause, ''), status = 'failed',
	unparsable, started_at, ended_at, after_seq, failures,
	duration_ms, input_tokens, output_tokens, cost_usd, progress, coalesce(turn, ''), outcome IS NOT NULL,
	coalesce(shape, ''), coalesce(effect, ''), stretch, calls, coalesce(calls_in, -1), coalesce(called_at, started_at)`

// readPrints reads many rows, and therefore avoids reflection.
func readPrints(ctx context.Context, q sqlx.QueryerContext, query string, args ...any) (list []printRow, err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r printRow
		var began, at, called ckpt.Time
		err := rows.Scan(&r.id, &r.Key, &r.Tool, &r.Sig, &r.Res, &r.Cause, &r.Failed, &r.Unparsable, &began, &at, &r.AfterSeq, &r.failures,
			&r.DurationMS, &r.InputTokens, &r.OutputTokens, &r.CostUSD, &r.Progress,
			&r.Turn, &r.Negative, &r.Shape, &r.Effect, &r.stretch, &r.calls, &r.callsIn, &called)
		if err != nil {
			return nil, err
		}
		r.Began, r.At, r.called = began.Time, at.Time, called.Time
		list = append(list, r)
	}
	return list, rows.Err()
}

// readPast reads a run's history, as this transaction sees it.
func readPast(tx *ledger.Tx, run *ledger.RunRow, open []ckpt.Finding, made *past) (*observer.RunPast, error) {
	all := &observer.RunPast{Open: open, StartedAt: run.StartedAt.Time, Progress: run.Progress, ProgressAt: run.ProgressAt.Time}
	if made != nil {
		all.Baseline = made.baseline
	}
	row, err := readPastTotals(tx, run, all)
	if err != nil {
		return nil, err
	}
	if all.TotalSteps > 0 {
		if err := readPastSteps(tx, run, all); err != nil {
			return nil, err
		}
	}
	if run.LastEvent > 0 {
		if err := readPastEntered(tx, run, all); err != nil {
			return nil, err
		}
	}
	if row.Found {
		if err := readPastDismissed(tx, run, all); err != nil {
			return nil, err
		}
	}
	all.LastRefresh = run.SegmentAt.Time
	if run.LastSeq == 0 {
		return all, nil
	}
	return all, readPastStates(tx, run, row, all, made)
}

// totals are the columns of a run's row that sum up its history.
type totals struct {
	Goal        ckpt.Ref `db:"first_goal"`
	Steps       int64    `db:"steps_ended"`
	Input       int64    `db:"input_tokens"`
	Output      int64    `db:"output_tokens"`
	CostUSD     float64  `db:"cost_usd"`
	StretchSeq  int64    `db:"stretch_seq"`
	StretchFrom int64    `db:"stretch_from"`
	Found       bool     `db:"found"` // there was a finding at any time
}

func readPastTotals(tx *ledger.Tx, run *ledger.RunRow, all *observer.RunPast) (*totals, error) {
	row := &totals{}
	_, err := tx.Get(row, `SELECT first_goal, steps_ended, input_tokens, output_tokens, cost_usd, stretch_seq, stretch_from,
		EXISTS (SELECT 1 FROM findings WHERE run_id = ?1) AS found FROM runs WHERE id = ?1`, run.ID)
	all.Goal, all.TotalSteps, all.InputTokens, all.OutputTokens, all.CostUSD = string(row.Goal), row.Steps, row.Input, row.Output, row.CostUSD
	return row, err
}

// readPastSteps reads the steps of this segment in the order in which they ended, with their
// earlier failed attempts.
func readPastSteps(tx *ledger.Tx, run *ledger.RunRow, all *observer.RunPast) error {
	rows, err := readPrints(tx.Ctx, tx.Conn,
		`SELECT `+printColumns+` FROM steps WHERE run_id = ?1 AND (stretch = ?2 OR calls_in = ?2) AND sig IS NOT NULL AND ended_at IS NOT NULL
		ORDER BY after_seq DESC, id DESC LIMIT 0 + ?3`, run.ID, run.Stretch, observer.MaxPastSteps)
	if err != nil {
		return err
	}
	rows = withCalls(rows, run.Stretch)
	slices.SortStableFunc(rows, func(a, b printRow) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.id, b.id)) })
	for i := range rows {
		all.Steps = append(all.Steps, rows[i].prints()...)
	}
	all.Steps = all.Steps[max(0, len(all.Steps)-observer.MaxPastSteps):]
	return nil
}

// withCalls adds the calls that were answered with the results of earlier ones in a stretch, at the
// time of the last one, and leaves out steps of other stretches.
func withCalls(rows []printRow, stretch int64) (all []printRow) {
	for i := range rows {
		r := rows[i]
		if r.stretch == stretch {
			all = append(all, r)
		}
		if r.callsIn != stretch {
			continue
		}
		again := r
		again.At, again.Began, again.failures, again.Measures = r.called, r.called, 0, ckpt.Measures{}
		for range min(r.calls, observer.MaxPastSteps) {
			all = append(all, again)
		}
	}
	return all
}

// pastEvents is how many of a run's newest events are searched for the states that a loop entered.
const pastEvents = 5000

// readPastEntered reads the states that a loop entered since its segment began.
func readPastEntered(tx *ledger.Tx, run *ledger.RunRow, all *observer.RunPast) error {
	return tx.List(&all.Entered, `SELECT coalesce(payload ->> 'state', '') FROM events WHERE run_id = ?1 AND seq > ?2 AND type = ?3
		AND at >= coalesce((SELECT segment_at FROM runs WHERE id = ?1), '') ORDER BY seq`, run.ID, run.LastEvent-pastEvents, ckpt.EventStateEnter)
}

// pastFailures is the most failed attempts of one key that are counted again.
const pastFailures = 20

func readPastDismissed(tx *ledger.Tx, run *ledger.RunRow, all *observer.RunPast) error {
	var rows []struct {
		Rule string    `db:"rule"`
		At   ckpt.Time `db:"at"`
	}
	err := tx.List(&rows, `SELECT rule, max(dismissed_at) AS at FROM findings WHERE run_id = ? AND closed = 'dismissed' GROUP BY rule`, run.ID)
	all.Dismissed = make(map[string]time.Time, len(rows))
	for _, row := range rows {
		all.Dismissed[row.Rule] = row.At.Time
	}
	if _, dismissed := all.Dismissed["goal_changed"]; dismissed && err == nil {
		_, err = tx.Get(&all.DroppedGoal, `SELECT evidence FROM findings WHERE run_id = ? AND rule = 'goal_changed' AND closed = 'dismissed'
			ORDER BY dismissed_at DESC, id DESC LIMIT 1`, run.ID)
	}
	return err
}

// readPastStates reads the states that this segment began with and those that it has made. It
// leaves out states that the run has left behind.
func readPastStates(tx *ledger.Tx, run *ledger.RunRow, of *totals, all *observer.RunPast, made *past) error {
	type pastState struct {
		ID      string                    `db:"id"`
		Seq     int64                     `db:"seq"`
		Kind    ckpt.Kind                 `db:"kind"`
		At      ledger.Lenient[ckpt.Time] `db:"created_at"`
		Size    int64                     `db:"size"`
		Suspect bool                      `db:"suspect"`
	}
	var rows []pastState
	for _, kind := range ckpt.Kinds {
		var some []pastState
		err := tx.List(&some, `SELECT id, seq, kind, created_at, size, suspect`+ofRunAndKind(kind), run.ID, observer.MaxPastStates)
		if err != nil {
			return err
		}
		rows = append(rows, some...)
	}
	rows = slices.DeleteFunc(rows, func(c pastState) bool {
		return c.Seq <= of.StretchSeq && (c.Seq > of.StretchFrom || c.Suspect) && c.Seq != of.StretchFrom
	})
	slices.SortFunc(rows, func(a, b pastState) int { return cmp.Compare(b.Seq, a.Seq) })
	rows = rows[:min(len(rows), observer.MaxPastStates)]
	for _, row := range slices.Backward(rows) {
		at := row.At.Value.Time
		print := observer.StatePrint{}
		if made != nil {
			print = made.states[row.ID]
		}
		print.ID, print.Seq, print.Kind, print.At, print.Size = row.ID, row.Seq, row.Kind, at, row.Size
		all.States = append(all.States, print)
		switch {
		case row.Kind == ckpt.KindRoutine:
			all.LastRoutine = at
		case row.Kind == ckpt.KindRecovery && at.After(all.LastRefresh):
			all.LastRefresh = at
		}
	}
	return nil
}

// makePrint keeps a bug in a detector from failing a save or a tick. What it returns then is the zero value.
func makePrint[T any](s *Drifts, key blob.RunKey, make func() (T, error)) (print T, err error) {
	defer func() {
		if p := recover(); p != nil {
			var none T
			print, err = none, nil
			s.Watches.Panics.Add(1)
			s.Log.Error("a drift detector panicked: it does not count this", "agent", key.Agent, "run", key.Run,
				"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	return make()
}

// preparing runs work that may take long because of a user's schema or rules. It gives up if the
// caller has gone away or the daemon stops, because nothing was written yet.
func preparing(ctx context.Context, p *ckpt.Policy, do func(context.Context) error) error {
	if p.Schema == nil && len(p.Rules) == 0 {
		return do(context.Background())
	}
	asking, cancel := ckpt.Asking(ctx)
	defer cancel()
	err := do(asking)
	if err != nil && asking.Err() != nil {
		err = ckpt.Wrap(ckpt.CodeBusy, err, "the schema and the rules of the agent's policy were not evaluated completely, because the client "+
			"disconnected or the daemon is stopping: nothing was saved")
	}
	return err
}

// prints returns the fingerprints of a step, with its earlier failed attempts.
func (r *printRow) prints() []observer.StepPrint {
	list := make([]observer.StepPrint, 0, 1)
	for range min(r.failures, pastFailures) {
		list = append(list, observer.StepPrint{Key: r.Key, Tool: r.Tool, Sig: r.Sig, Failed: true, Began: r.At, At: r.At, AfterSeq: r.AfterSeq})
	}
	return append(list, r.StepPrint)
}
