package db

import (
	"context"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/driftlog"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

func findStep(tx *ledger.Tx, runID int64, key string) (*ledger.StepRow, error) {
	var row ledger.StepRow
	found, err := tx.Get(&row, `SELECT `+ledger.StepColumns+` FROM steps WHERE run_id = ? AND key = ?`, runID, key)
	if err != nil || !found {
		return nil, err
	}
	return &row, nil
}

// BeginStep begins a step or records a whole step. If the key has succeeded, it returns the stored
// result, and the step must not run again.
func (s *Store) BeginStep(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, r ckpt.StepRequest) (*ckpt.Step, bool, error) {
	if err := wellformed.Step(&r, false); err != nil {
		return nil, false, err
	}
	c := s.screenStep(sc, ref, &r)
	c.Again(func() error { return wellformed.Step(&r, false) })
	return s.stepWrite(ctx, sc, ref, r, c, "begin_step", func(
		tx *ledger.Tx, run *ledger.RunRow, old *ledger.StepRow, print *observer.StepPrint, e ledger.AuditEntry,
	) (*ckpt.Step, error) {
		if old != nil && old.Status == ckpt.StepSucceeded {
			old.Replayed = true
			return &old.Step, nil
		}
		return putStep(tx, run, old, r, print, e)
	})
}

// FinishStep records how a step ended. A step that has succeeded stays unchanged.
func (s *Store) FinishStep(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, r ckpt.StepRequest) (*ckpt.Step, bool, error) {
	if r.Status == "" {
		r.Status = ckpt.StepSucceeded
	}
	if err := wellformed.Step(&r, true); err != nil {
		return nil, false, err
	}
	c := s.screenStep(sc, ref, &r)
	c.Again(func() error { return wellformed.Step(&r, true) })
	return s.stepWrite(ctx, sc, ref, r, c, "finish_step", func(
		tx *ledger.Tx, run *ledger.RunRow, old *ledger.StepRow, print *observer.StepPrint, e ledger.AuditEntry,
	) (*ckpt.Step, error) {
		switch {
		case old == nil:
			return nil, ckpt.Errorf(ckpt.CodeNotFound, "run %s has no step %s: begin it first, or record the whole step", run.Name, r.Key)
		case old.Status == ckpt.StepSucceeded:
			old.Replayed = true
			return &old.Step, nil
		}
		r.Name, r.Args = old.Name, old.Args
		return endStep(tx, run, old, r, print, e)
	})
}

// screenStep changes a step's texts into the texts that are stored.
func (s *Store) screenStep(sc ckpt.Scope, ref ckpt.RunRef, r *ckpt.StepRequest) *ledger.Screening {
	c := s.Screen(sc, ref.Agent, "step")
	c.Key("key", r.Key)
	c.Text("name", &r.Name)
	c.JSON("args", &r.Args)
	c.JSON("result", &r.Result)
	c.Ref("error", &r.Error)
	return c
}

// stepWrite is the common part of all writes of steps.
func (s *Store) stepWrite(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, r ckpt.StepRequest, c *ledger.Screening, action string,
	do func(*ledger.Tx, *ledger.RunRow, *ledger.StepRow, *observer.StepPrint, ledger.AuditEntry) (*ckpt.Step, error)) (*ckpt.Step, bool, error) {
	if err := ref.Check(); err != nil {
		return nil, false, err
	}
	if c.Err != nil {
		return nil, false, c.Err
	}
	ref.Epoch = r.Epoch
	e := ledger.Entry(sc, action, ref.Agent)
	e.Run, e.Subject = ledger.RunName(ref.Run), r.Key
	printed, err := s.PrintStep(ctx, blob.RunKey{Owner: sc.Whose(), Agent: ref.Agent, Run: e.Run}, &r, action == "finish_step")
	if err != nil {
		return nil, false, err
	}
	return driftlog.Keyed(s.Drifts, sc, driftlog.KeyedRequest{
		Agent: ref.Agent, Key: r.IdempotencyKey, Print: r, Size: int64(len(r.Args) + len(r.Result) + len(r.Error)),
		Entry: e, Make: true, Drift: true, Secrets: c.Found, Brief: briefStep,
		Whole: func(tx *ledger.Tx, agent *ledger.AgentRow, result any) error {
			return wholeStep(tx, agent, ref, &r, result.(*ckpt.Step))
		},
	}, func(tx *ledger.Tx, _ *ledger.AgentRow) (*ckpt.Step, error) {
		tx.Touches() // a step changes nothing that a save reads
		agent, run, err := s.OpenRun(tx, sc, ref)
		if err != nil {
			return nil, err
		}
		w, err := s.WatchRun(tx, agent, run, printed.PastOf())
		if err != nil {
			return nil, err
		}
		old, err := findStep(tx, run.ID, r.Key)
		if err != nil {
			return nil, err
		}
		step, err := do(tx, run, old, printed.Stored(), e)
		if err != nil || step.Replayed && !r.Call {
			return step, err
		}
		if step.Replayed {
			err := tx.Fill(`UPDATE steps SET calls = CASE WHEN calls_in = ?1 THEN calls ELSE 0 END + 1, calls_in = ?1, called_at = ?2 WHERE id = ?3`,
				run.Stretch, tx.Now, old.ID)
			if err != nil {
				return nil, err
			}
			return step, s.WatchCall(tx, agent, run, w, old, e)
		}
		if err := noteProgress(tx, run, r.Progress); err != nil {
			return nil, err
		}
		return step, s.WatchStep(tx, agent, run, w, printed, step, old, e)
	})
}

// briefReply is what is kept with the key of a request about a step. The request has the step's key and texts.
type briefReply struct {
	Status    ckpt.StepStatus `json:"status"`
	Attempt   int64           `json:"attempt"`
	StartedAt ckpt.Time       `json:"started_at"`
	EndedAt   ckpt.Time       `json:"ended_at,omitzero"`
	Turn      ckpt.Ref        `json:"turn,omitempty"`
	Outcome   ckpt.Ref        `json:"outcome,omitempty"`
	measures
	Replayed bool `json:"replayed,omitempty"`
}

// measures are those of ckpt.Measures that are known.
type measures struct {
	DurationMS   *int64   `json:"duration_ms,omitempty"`
	InputTokens  *int64   `json:"input_tokens,omitempty"`
	OutputTokens *int64   `json:"output_tokens,omitempty"`
	CostUSD      *float64 `json:"cost_usd,omitempty"`
	Progress     *float64 `json:"progress,omitempty"`
}

func briefStep(result any) any {
	s := result.(*ckpt.Step)
	return &briefReply{s.Status, s.Attempt, s.StartedAt, s.EndedAt, s.Turn, s.Outcome, measures(s.Measures), s.Replayed}
}

// wholeStep brings back what briefStep has left out. The end of a step has no name and no arguments of its own: these are in the row.
func wholeStep(tx *ledger.Tx, agent *ledger.AgentRow, ref ckpt.RunRef, r *ckpt.StepRequest, step *ckpt.Step) error {
	step.Key, step.Name, step.Args, step.Result, step.Error = r.Key, r.Name, r.Args, r.Result, r.Error
	if r.Name != "" {
		return nil
	}
	row := struct {
		Name string    `db:"name"`
		Args ckpt.JSON `db:"args"`
	}{}
	_, err := tx.Get(&row, `SELECT s.name, s.args FROM runs r JOIN steps s ON s.run_id = r.id WHERE r.agent_id = ? AND r.name = ? AND s.key = ?`,
		agent.ID, ledger.RunName(ref.Run), r.Key)
	step.Name, step.Args = row.Name, row.Args
	return err
}

// putStep begins a step or its next attempt, or records a whole step.
func putStep(tx *ledger.Tx, run *ledger.RunRow, old *ledger.StepRow, r ckpt.StepRequest, print *observer.StepPrint,
	e ledger.AuditEntry) (*ckpt.Step, error) {
	step := ckpt.Step{Key: r.Key, Name: r.Name, Args: r.Args, Status: r.Status, Attempt: 1, Result: r.Result,
		Error: r.Error, StartedAt: tx.Now, Turn: r.Turn, Outcome: outcomeOf(r, print), Measures: r.Measured()}
	if step.Status == "" {
		step.Status = ckpt.StepStarted
	}
	if step.Status != ckpt.StepStarted {
		step.EndedAt = tx.Now
	}
	failures := int64(0)
	if old != nil {
		step.Attempt, failures = old.Attempt+1, failuresIn(old, run)
		if err := tx.Exec(`DELETE FROM steps WHERE id = ?`, old.ID); err != nil {
			return nil, err
		}
	}
	err := tx.Insert(`INSERT INTO steps (run_id, key, attempt, name, status, args, result, error, started_at, ended_at, duration_ms,
		input_tokens, output_tokens, cost_usd, progress, after_seq,
		stretch, failures, sig, res, cause, unparsable, turn, outcome, shape, effect)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
		?)`, run.ID, step.Key, step.Attempt, step.Name, string(step.Status), step.Args, step.Result, step.Error,
		step.StartedAt, step.EndedAt, step.DurationMS, step.InputTokens, step.OutputTokens, step.CostUSD, step.Progress, run.LastSeq,
		run.Stretch, failures, ckpt.Ref(print.Sig), ckpt.Ref(print.Res), ckpt.Ref(print.Cause), print.Unparsable, step.Turn,
		step.Outcome, ckpt.Ref(print.Shape), ckpt.Ref(print.Effect))
	if err != nil {
		return nil, err
	}
	e.Detail = stepDetail(&step)
	return &step, tx.Audit(e)
}

// stepDetail is what the row of the audit log says about a step. The hashes are of what a resumed agent takes for work that was done.
func stepDetail(step *ckpt.Step) map[string]any {
	d := map[string]any{"name": step.Name, "status": step.Status, "attempt": step.Attempt}
	for member, text := range map[string]string{"args_hash": string(step.Args), "result_hash": string(step.Result), "error_hash": string(step.Error)} {
		if text != "" {
			d[member] = ledger.ShortHash([]byte(text))
		}
	}
	return d
}

// outcomeOf is negative if the agent said so or the detectors saw it.
func outcomeOf(r ckpt.StepRequest, print *observer.StepPrint) ckpt.Ref {
	if print.Negative {
		return ckpt.StepNegative
	}
	return r.Outcome
}

// failuresIn is how many attempts of a step have failed since the run's segment began, including
// this one.
func failuresIn(s *ledger.StepRow, run *ledger.RunRow) int64 {
	switch {
	case s.Stretch != run.Stretch:
		return 0
	case s.Status == ckpt.StepFailed:
		return s.Failures + 1
	}
	return s.Failures
}

func endStep(tx *ledger.Tx, run *ledger.RunRow, old *ledger.StepRow, r ckpt.StepRequest, print *observer.StepPrint,
	e ledger.AuditEntry) (*ckpt.Step, error) {
	step := old.Step
	step.Status, step.Result, step.Error, step.EndedAt, step.Measures = r.Status, r.Result, r.Error, tx.Now, r.Measured()
	if r.Turn != "" {
		step.Turn = r.Turn
	}
	step.Outcome = outcomeOf(r, print)
	if step.DurationMS == nil {
		took := tx.Now.Sub(step.StartedAt.Time).Milliseconds()
		step.DurationMS = &took
	}
	err := tx.Fill(`UPDATE steps SET status = ?, result = ?, error = ?, ended_at = ?, duration_ms = ?, input_tokens = ?,
		output_tokens = ?, cost_usd = ?, progress = ?, after_seq = ?,
		stretch = ?, failures = ?, res = ?, cause = ?, unparsable = ?, turn = ?, outcome = ?
		WHERE id = ?`, string(step.Status), step.Result, step.Error, step.EndedAt, step.DurationMS, step.InputTokens,
		step.OutputTokens, step.CostUSD, step.Progress, run.LastSeq,
		run.Stretch, failuresIn(old, run), ckpt.Ref(print.Res), ckpt.Ref(print.Cause), print.Unparsable, step.Turn, step.Outcome, old.ID)
	if err != nil {
		return nil, err
	}
	e.Detail = stepDetail(&step)
	return &step, tx.Audit(e)
}

// Steps lists a run's steps in the order in which they began.
func (s *Store) Steps(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, f ckpt.ListFilter) (*ckpt.StepPage, error) {
	if err := ckpt.CheckStatus("step", ckpt.StepStatus(f.Status), ckpt.StepStatuses); err != nil {
		return nil, err
	}
	run, after, limit, err := s.listOf(ctx, sc, ref, f, "read_steps")
	if err != nil {
		return nil, err
	}
	var rows []ledger.StepRow
	err = s.RO.SelectContext(ctx, &rows, `SELECT `+ledger.StepColumns+selectSteps(f.Status), run.ID, after, limit+1, f.Status, ledger.PageBytes)
	page := &ckpt.StepPage{Steps: []ckpt.Step{}}
	for i := range rows[:min(limit, len(rows))] {
		page.Steps = append(page.Steps, rows[i].Step)
	}
	if n := len(page.Steps); n > 0 && rows[n-1].More {
		page.Next = s.Numbers(sc).WriteCursor(rows[n-1].ID)
	}
	return page, sqlite.ReadError(err)
}

// selectSteps is the query for a page of a run's steps. If no status is asked for, it chooses the
// steps by an index alone. It reads no step that is not on the page.
func selectSteps(status string) string {
	from := `steps INDEXED BY steps_of_run WHERE run_id = ?1 AND id > ?2 AND ?4 = ''`
	switch ckpt.StepStatus(status) {
	case "":
	case ckpt.StepFailed, ckpt.StepInterrupted:
		from = `steps INDEXED BY steps_failed WHERE run_id = ?1 AND id > ?2 AND status IN ('failed', 'interrupted') AND status = ?4`
	default:
		from = `steps INDEXED BY steps_of_run WHERE run_id = ?1 AND id > ?2 AND status = ?4`
	}
	return `, more FROM (SELECT *,
			sum(coalesce(length(args), 0) + coalesce(length(result), 0))
			OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before,
			lead(id) OVER (ORDER BY id) IS NOT NULL AS more
			FROM steps WHERE id IN (SELECT id FROM ` + from + ` ORDER BY id LIMIT 0 + ?3))
		WHERE coalesce(before, 0) < ?5 ORDER BY id`
}

// listOf prepares a page of the rows that belong to a run.
func (s *Store) listOf(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, f ckpt.ListFilter,
	action string) (run *ledger.ReadRun, from int64, limit int, err error) {
	if limit, err = ledger.PageSizeOf(f.Limit); err != nil {
		return nil, 0, 0, err
	}
	if f.Before != "" {
		if from, err = s.Numbers(sc).ReadCursor(f.Before); err != nil {
			return nil, 0, 0, err
		}
	}
	if run, err = s.FindRun(ctx, sc, ref); err != nil {
		return nil, 0, 0, err
	}
	s.AuditRead(sc, action, ref.Agent, "")
	return run, from, limit, nil
}
