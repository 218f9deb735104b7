package db_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/drift"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// work records a run of the agent "a" that makes one call this many times with
// the same result, and ends it successfully.
func (d *drifty) work(name string, same int) {
	d.t.Helper()
	ref := ckpt.RunRef{Agent: "a", Run: name}
	if _, _, err := d.StartRun(d.t.Context(), ann, ckpt.RunRequest{Agent: "a", Run: name, Workflow: "nightly"}); err != nil {
		d.t.Fatal(err)
	}
	for i := range same + 4 {
		r := ckpt.StepRequest{Key: fmt.Sprint("k", i), Name: "search", Args: ckpt.JSON(`{"q":"x"}`), Result: ckpt.JSON(`"nothing"`), Status: ckpt.StepSucceeded}
		if i >= same {
			r.Name, r.Result = "read", ckpt.JSON(fmt.Sprintf(`"text %s"`, strings.Repeat("i", i)))
		}
		if _, _, err := d.BeginStep(d.t.Context(), ann, ref, r); err != nil {
			d.t.Fatal(err)
		}
	}
	if _, _, err := d.EndRun(d.t.Context(), ann, ref, ckpt.EndRequest{Status: ckpt.RunCompleted}); err != nil {
		d.t.Fatal(err)
	}
}

// TestEvaluateRecordedRuns evaluates the recorded runs with the present
// threshold and with another one.
func TestEvaluateRecordedRuns(t *testing.T) {
	t.Parallel()
	d := openReal(t)
	d.work("quiet", 2)
	d.work("loops", 4)
	ask := func(r ckpt.EvaluateRequest) *ckpt.Evaluation {
		t.Helper()
		e, err := d.Evaluate(t.Context(), ann, r)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	e := ask(ckpt.EvaluateRequest{Agent: "a"})
	if e.Runs != 2 || e.Steps != 14 || len(e.Warned) != 1 || e.Warned[0].Run != "loops" || e.Warned[0].Workflow != "nightly" || e.Warned[0].First[0].Step != 3 || e.Warned[0].First[0].Key != "k3" {
		t.Errorf("%+v", e)
	}
	if row := e.Rows[0]; row.Source != "a" || row.Outcome != "completed" || row.Fired != 1 || row.Share != 0.5 || !(row.Low > 0.09 && row.High < 0.91) {
		t.Errorf("%+v", row)
	}
	e = ask(ckpt.EvaluateRequest{Agent: "a", Detectors: map[string]ckpt.Detector{"repeat": {Warn: 5, WarnWindow: 12, Tier: "warn"}}})
	if len(e.Warned) != 0 {
		t.Errorf("with repeat.warn=5in12: %+v", e.Warned)
	}
	e = ask(ckpt.EvaluateRequest{Agent: "a", Run: "loops"})
	if len(e.Explained) != 8 || e.Explained[0].Saw[0] != "new" || e.Explained[3].Levels["repeat"] != 1 || len(e.Explained[3].Findings) != 1 {
		t.Errorf("%+v", e.Explained)
	}
	_, err := d.Evaluate(t.Context(), bob, ckpt.EvaluateRequest{Agent: "a"})
	wantCode(t, err, ckpt.CodeNotFound)
	if e, err = d.Evaluate(t.Context(), bob, ckpt.EvaluateRequest{}); err != nil || e.Runs != 0 {
		t.Errorf("a stranger sees %+v, %v", e, err)
	}
}

// TestCalibrationFollowsGoodRuns requests 20 % false alarms, for which four
// good runs are enough. After that, two equal calls of an agent that never
// repeats itself are too many, and the finding says why.
func TestCalibrationFollowsGoodRuns(t *testing.T) {
	t.Parallel()
	d := openReal(t)
	d.policy(func(p *ckpt.Policy) { p.FalseAlarms = 0.2 })
	for i := range 3 {
		d.work(fmt.Sprint("good", i), 1)
	}
	tick := func() ckpt.Calibration {
		t.Helper()
		if err := d.TickDrift(t.Context()); err != nil {
			t.Fatal(err)
		}
		r, err := d.Store.Drift(t.Context(), ann, ckpt.DriftFilter{Agent: "a", Run: "good0"})
		if err != nil || r.Calibration == nil {
			t.Fatalf("%+v, %v", r, err)
		}
		return *r.Calibration
	}
	if c := tick(); c.Runs != 3 || c.Needs != 4 || c.Factor != 0 {
		t.Errorf("with three runs: %+v", c)
	}
	d.work("good3", 1)
	d.reopen() // the calibration follows only from what is recorded
	if c := tick(); c.Runs != 4 || !(c.Factor > 0 && c.Factor < 0.5) || c.Quiet != 4 {
		t.Errorf("with four runs: %+v", c)
	}
	d.work("odd", 2)
	found, err := d.Store.Drift(t.Context(), ann, ckpt.DriftFilter{Agent: "a", Run: "odd", All: true})
	if err != nil || len(found.Findings) != 1 || !strings.Contains(found.Findings[0].Message, "In 4 runs of this agent that ended well nothing like it came.") ||
		!strings.Contains(string(found.Findings[0].Evidence), `"good_runs":4`) {
		t.Errorf("%+v, %v", found, err)
	}
	page, err := d.Audit(t.Context(), ann, ckpt.AuditFilter{Agent: "a", Action: "calibrate"})
	if err != nil || len(page.Audit) != 1 || !strings.Contains(string(page.Audit[0].Detail), `"runs":4`) {
		t.Errorf("%+v, %v", page, err)
	}
	d.noViolations()
}

// TestFeedbackSuggestsWhatWouldHaveSparedIt: one of two warnings is dismissed,
// and the answer contains the threshold that separates them.
func TestFeedbackSuggestsWhatWouldHaveSparedIt(t *testing.T) {
	t.Parallel()
	d := openReal(t)
	d.policy(func(p *ckpt.Policy) { p.Detectors = map[string]ckpt.Detector{"repeat": {Tier: "warn"}} })
	d.work("fine", 4)
	d.work("loops", 9)
	fine, err := d.Store.Drift(t.Context(), ann, ckpt.DriftFilter{Agent: "a", Run: "fine", All: true})
	if err != nil || len(fine.Findings) != 1 {
		t.Fatalf("%+v, %v", fine, err)
	}
	if _, _, err := d.Dismiss(t.Context(), ann, ckpt.DismissRequest{ID: fine.Findings[0].ID, Reason: "it was waiting"}); err != nil {
		t.Fatal(err)
	}
	f, err := d.Feedback(t.Context(), ann, "a")
	if err != nil || len(f.Rules) != 1 || f.Rules[0].Rule != "repeat" || f.Rules[0].Dismissed != 1 || f.Rules[0].Suggestion == nil {
		t.Fatalf("%+v, %v", f, err)
	}
	if s := f.Rules[0].Suggestion; s.Detectors["repeat"].Warn != 5 || s.Spared != 1 || s.Of != 1 || s.Lost != 0 || s.Kept != 1 || !strings.HasPrefix(s.Set, "detectors.repeat.warn=5") {
		t.Errorf("%+v", s)
	}
	_, err = d.Feedback(t.Context(), bob, "a")
	wantCode(t, err, ckpt.CodeNotFound)
}

// TestEvaluateManySteps logs how long the evaluation of 20,000 recorded steps
// takes.
func TestEvaluateManySteps(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	d := openReal(t)
	d.work("first", 1)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	sql(t, d.options.Path, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)
		INSERT INTO runs (agent_id, name, status, started_at, updated_at, ended_at, steps_ended, workflow)
		SELECT agent_id, 'run' || i, 'completed', started_at, updated_at, ended_at, 40, workflow FROM runs, n WHERE name = 'first'`)
	sql(t, d.options.Path, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40)
		INSERT INTO steps (run_id, key, name, status, started_at, ended_at, stretch, sig, res)
		SELECT r.id, 'k' || n.i, 'search', 'succeeded', r.started_at, r.started_at, 1, printf('%032x', n.i + 1000), printf('%032x', n.i * 7919) FROM runs r, n WHERE r.name LIKE 'run%'`)
	d.Store = openWith(t, d.options)
	began := time.Now()
	e, err := d.Evaluate(t.Context(), ann, ckpt.EvaluateRequest{Agent: "a"})
	if err != nil || e.Runs != 501 || e.Steps != 20_005 {
		t.Fatalf("%d runs, %d steps, %v", e.Runs, e.Steps, err)
	}
	t.Logf("20,005 steps of 501 runs were judged in %v", time.Since(began).Round(time.Millisecond))
}

// TestCalibrationReachesRunningRuns: after a restart, a run that is watched
// before the calibration is known is calibrated too. The audit log has what
// the calibration of all runs together has changed.
func TestCalibrationReachesRunningRuns(t *testing.T) {
	t.Parallel()
	d := openReal(t)
	d.policy(func(p *ckpt.Policy) { p.FalseAlarms = 0.2 })
	for i := range 60 { // more than one tick scores
		d.work(fmt.Sprint("good", i), 1)
	}
	d.reopen()
	ref := ckpt.RunRef{Agent: "a", Run: "odd"}
	if _, _, err := d.StartRun(t.Context(), ann, ckpt.RunRequest{Agent: "a", Run: "odd", Workflow: "nightly"}); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		r := ckpt.StepRequest{Key: fmt.Sprint("k", i), Name: "search", Args: ckpt.JSON(`{"q":"x"}`), Result: ckpt.JSON(`"nothing"`), Status: ckpt.StepSucceeded}
		if _, _, err := d.BeginStep(t.Context(), ann, ref, r); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := d.TickDrift(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	found, err := d.Store.Drift(t.Context(), ann, ckpt.DriftFilter{Agent: "a", Run: "odd", All: true})
	if err != nil || len(found.Findings) != 1 || !strings.Contains(found.Findings[0].Message, "In 60 runs of this agent that ended well nothing like it came.") {
		t.Errorf("%+v, %v", found, err)
	}
	page, err := d.Audit(t.Context(), ann, ckpt.AuditFilter{Agent: "a", Action: "calibrate"})
	if err != nil || len(page.Audit) != 1 || !strings.Contains(string(page.Audit[0].Detail), `"runs":60`) {
		t.Errorf("%+v, %v", page, err)
	}
}

// TestCalibrationWithoutRuns requests a calibration for an agent that has no
// completed run.
func TestCalibrationWithoutRuns(t *testing.T) {
	t.Parallel()
	d := openReal(t)
	d.policy(func(p *ckpt.Policy) { p.FalseAlarms = 0.2 })
	for range 2 {
		if err := d.TickDrift(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	d.work("good", 1)
	d.reopen()
	if err := d.TickDrift(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := d.Store.Drift(t.Context(), ann, ckpt.DriftFilter{Agent: "a", Run: "good"})
	if err != nil || r.Calibration == nil || r.Calibration.Runs != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestCalibrationWithoutDamagedRuns: a run with a damaged step does not count.
// It is reported, and the other runs are enough for a calibration.
func TestCalibrationWithoutDamagedRuns(t *testing.T) {
	t.Parallel()
	d := openReal(t)
	d.policy(func(p *ckpt.Policy) { p.FalseAlarms = 0.2 })
	for i := range 5 {
		d.work(fmt.Sprint("good", i), 1)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	sql(t, d.options.Path, `UPDATE steps SET ended_at = 'x' WHERE run_id = (SELECT id FROM runs WHERE name = 'good2') AND key = 'k1'`)
	d.Store = openWith(t, d.options)
	if err := d.TickDrift(t.Context()); err == nil {
		t.Error("the damage is not reported")
	}
	r, err := d.Store.Drift(t.Context(), ann, ckpt.DriftFilter{Agent: "a", Run: "good0"})
	if err != nil || r.Calibration == nil || r.Calibration.Runs != 4 {
		t.Errorf("%+v, %v", r, err)
	}
}

// mistaken is a drift detector that panics when it scores a run.
type mistaken struct{ observer.Watcher }

func (mistaken) Score(*ckpt.Policy, *observer.RecordedRun) float64 {
	panic("the detector has a mistake")
}

// TestMistakenDetectorStopsNoTick: if a detector panics while it scores a run,
// the run does not count, and the tick goes on.
func TestMistakenDetectorStopsNoTick(t *testing.T) {
	t.Parallel()
	d := openDrifty(t, func(o *db.Options) { o.Drift = mistaken{drift.New()} })
	d.policy(func(p *ckpt.Policy) { p.FalseAlarms = 0.2 })
	d.work("good", 1)
	if err := d.TickDrift(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := d.Store.Drift(t.Context(), ann, ckpt.DriftFilter{Agent: "a", Run: "good"})
	if err != nil || r.Calibration == nil || r.Calibration.Runs != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if n := d.Watches.Panics.Load(); n != 1 {
		t.Errorf("%d panics were counted", n)
	}
}

// TestPolicyIsReadOnce: the evaluation of many runs and their calibration read
// a large policy once, not once for each run. It counts bytes that are
// allocated, because these do not depend on the machine.
func TestPolicyIsReadOnce(t *testing.T) {
	const runs, size = 400, 200 << 10
	d := openReal(t)
	d.work("first", 1)
	d.policy(func(p *ckpt.Policy) {
		p.FalseAlarms = 0.2
		p.Schema = ckpt.JSON(`{"description":"` + strings.Repeat("x", size) + `"}`)
	})
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	sql(t, d.options.Path, fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
		INSERT INTO runs (agent_id, name, status, started_at, updated_at, ended_at, steps_ended, workflow)
		SELECT agent_id, 'run' || i, 'completed', started_at, updated_at, ended_at, 1, workflow FROM runs, n WHERE name = 'first'`, runs))
	d.Store = openWith(t, d.options)
	for what, do := range map[string]func() error{
		"evaluate": func() error {
			e, err := d.Evaluate(t.Context(), ann, ckpt.EvaluateRequest{Agent: "a"})
			if err == nil && e.Runs != 1 {
				t.Errorf("%d runs have steps", e.Runs)
			}
			return err
		},
		"calibrate": func() error { return d.TickDrift(t.Context()) },
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := do(); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > runs*size/2 {
			t.Errorf("%s: %d MiB were allocated for %d runs", what, n>>20, runs)
		}
	}
}
