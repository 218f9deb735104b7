package db_test

import (
	"fmt"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// fresh records n calls that were never made before.
func (d *drifty) fresh(n int) (last *ckpt.Step) {
	d.t.Helper()
	for range n {
		d.steps++
		step, _, err := d.BeginStep(d.t.Context(), ann, mainRun, ckpt.StepRequest{Key: fmt.Sprint("k", d.steps), Name: "work",
			Args: ckpt.JSON(fmt.Sprintf(`{"n":%d}`, d.steps)), Status: ckpt.StepSucceeded, Result: ckpt.JSON(fmt.Sprintf(`"result %d"`, d.steps))})
		if err != nil {
			d.t.Fatal(err)
		}
		last = step
	}
	return last
}

// fail records a call that failed.
func (d *drifty) fail(tool string) *ckpt.Step {
	d.t.Helper()
	d.steps++
	step, _, err := d.BeginStep(d.t.Context(), ann, mainRun, ckpt.StepRequest{Key: fmt.Sprint("k", d.steps), Name: tool,
		Args: ckpt.JSON(fmt.Sprintf(`{"a":%d}`, d.steps)), Status: ckpt.StepFailed, Error: "no such file"})
	if err != nil {
		d.t.Fatal(err)
	}
	return step
}

// wantClosed checks the newest finding of a rule.
func (d *drifty) wantClosed(rule string, want ckpt.Closing) *ckpt.Finding {
	d.t.Helper()
	all := d.report(true).Findings
	for i := range all {
		if f := &all[i]; f.Rule == rule {
			if f.Closed != ckpt.Ref(want) {
				d.t.Fatalf("%s is closed by %q, want %q: %+v", rule, f.Closed, want, f)
			}
			return f
		}
	}
	d.t.Fatalf("there is no finding of %s", rule)
	return nil
}

// TestALoopEnds: after six equal steps and 98 others, each saved, the verdict is none, the last state is clean, and a
// resume goes on from it. The states that were saved in between stay suspect.
func TestALoopEnds(t *testing.T) {
	t.Parallel()
	for _, restarts := range []bool{false, true} {
		d := openReal(t)
		d.policy(func(p *ckpt.Policy) { p.RoutineKeep = 0 })
		start(t, d.Store, 1)
		d.put(`{"n":0}`)
		var saved *ckpt.Saved
		step := func(n int, loops bool) {
			if loops {
				d.record("search", "nothing")
			} else {
				d.fresh(1)
			}
			if saved = d.put(fmt.Sprintf(`{"n":%d}`, n)); restarts && n%7 == 0 {
				d.reopen()
			}
		}
		for i := range 6 {
			step(i+1, true)
		}
		if !saved.Suspect || saved.Drift.Verdict != ckpt.SeverityCritical {
			t.Fatalf("%+v", saved)
		}
		for i := range 98 {
			step(i+7, false)
			if i == 18 && !saved.Suspect || i == 19 && saved.Suspect { // the window of the critical tier has 20 steps
				t.Fatalf("after %d other steps: %+v", i+1, saved)
			}
		}
		if saved.Suspect || saved.Drift.Verdict != ckpt.SeverityNone || saved.Drift.Clean != "" {
			t.Fatalf("%+v %+v", saved, saved.Drift)
		}
		f := d.wantClosed("repeat", ckpt.ClosedRecovered)
		if f.UntilSeq == nil || f.ClosedAt.IsZero() {
			t.Fatalf("%+v", f)
		}
		d.noViolations()
		plan := claim(t, d.Store, 1)
		if wantVerdict(t, plan, ckpt.VerdictResume); plan.Checkpoint.ID != saved.ID {
			t.Fatalf("resumes from %d, saved %d", plan.Checkpoint.Seq, saved.Seq)
		}
		sound(t, d.options.Path)
	}
}

// TestRetentionAfterRecovery: the states since the recovery are kept, and no longer the one from before the loop.
func TestRetentionAfterRecovery(t *testing.T) {
	t.Parallel()
	d := openReal(t)
	d.put(`{"n":0}`)
	for i := range 40 {
		if i < 6 {
			d.record("search", "nothing")
		} else {
			d.fresh(1)
		}
		d.put(fmt.Sprintf(`{"n":%d}`, i+1))
	}
	d.wantMarks("e6! o40 o41 o42")
}

// TestALoopThatComesBackIsTheSameFinding: a rule that fires again soon after it has recovered opens its finding again.
// What was saved in between stays clean, and a dismissal cleans both times.
func TestALoopThatComesBackIsTheSameFinding(t *testing.T) {
	t.Parallel()
	d := openReal(t)
	d.policy(func(p *ckpt.Policy) { p.RoutineKeep = 0 })
	start(t, d.Store, 1)
	d.put(`{"n":0}`)
	loop := func() (last *ckpt.Step) {
		for range 5 {
			last = d.record("search", "nothing")
			d.put(fmt.Sprintf(`{"n":%d}`, d.steps))
		}
		return last
	}
	if step := loop(); step.Drift.Verdict != ckpt.SeverityCritical {
		t.Fatalf("%+v", step.Drift)
	}
	first := d.wantClosed("repeat", "")
	d.fresh(20)
	d.wantClosed("repeat", ckpt.ClosedRecovered)
	between := d.put(`{"n":25}`)
	d.reopen()
	if step := loop(); step.Drift.Verdict != ckpt.SeverityCritical || step.Drift.Clean != ckpt.Ref(between.ID) {
		t.Fatalf("%+v, there is %s", step.Drift, d.marks())
	}
	f := d.wantClosed("repeat", "")
	if f.ID != first.ID || *f.SinceSeq < between.Seq || len(d.report(true).Findings) != 2 { // a warning and a critical one
		t.Fatalf("%+v", d.report(true).Findings)
	}
	d.noViolations()
	plan, _, err := d.Resume(t.Context(), as(1), ckpt.ResumeRequest{Agent: "a", PID: 1, DryRun: true})
	if err != nil || plan.Checkpoint.ID != between.ID {
		t.Fatalf("%+v %v", plan, err)
	}
	if _, _, err := d.Dismiss(t.Context(), ann, ckpt.DismissRequest{ID: f.ID}); err != nil {
		t.Fatal(err)
	}
	for _, mark := range d.marks() {
		if mark == '!' {
			t.Fatal(d.marks())
		}
	}
	d.noViolations()

	d.fresh(60) // much later, it is another finding
	loop()
	if f := d.wantClosed("repeat", ""); f.ID == first.ID {
		t.Fatal("opened again after it was dismissed")
	}
	sound(t, d.options.Path)
}

// TestErrorsEnd: three errors, then good steps.
func TestErrorsEnd(t *testing.T) {
	t.Parallel()
	d := openReal(t)
	d.fail("read")
	d.fail("read")
	if step := d.fail("read"); step.Drift.Verdict != ckpt.SeverityWarn {
		t.Fatalf("%+v", step.Drift)
	}
	if step := d.fresh(4); step.Drift.Verdict != ckpt.SeverityWarn {
		t.Fatalf("after four good steps: %+v", step.Drift)
	}
	if step := d.fresh(53); step.Drift.Verdict != ckpt.SeverityNone || step.Drift.Advice != "" {
		t.Fatalf("%+v", step.Drift)
	}
	d.wantClosed("error_streak", ckpt.ClosedRecovered)
}

// TestStatesAreMended: findings about states end when a later state is right, and the way back leads before the fault
// until then, also for a warning.
func TestStatesAreMended(t *testing.T) {
	t.Parallel()
	for rule, of := range map[string]struct{ good, bad, mended string }{
		"lost_keys":        {`{"plan":"p","n":%d}`, `{"n":%d}`, `{"plan":"q","n":%d}`},
		"type_changed":     {`{"plan":"p","n":%d}`, `{"plan":7,"n":%d}`, `{"plan":"q","n":%d}`},
		"counter_reversed": {`{"count":{"i":%d},"n":0}`, `{"count":{"i":0},"n":%d}`, `{"count":{"i":%d},"n":12}`},
		"mine":             {`{"n":%d,"bad":false}`, `{"n":%d,"bad":true}`, `{"n":%d,"bad":false}`},
	} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			d := openReal(t)
			d.policy(func(p *ckpt.Policy) {
				p.Rules = []ckpt.Rule{{Name: "mine", When: "state.bad == true", Severity: ckpt.SeverityWarn, Message: "It is bad."}}
			})
			start(t, d.Store, 1)
			n := 0
			put := func(form string) *ckpt.Saved { n++; return d.put(fmt.Sprintf(form, n)) }
			var good *ckpt.Saved
			for range 6 {
				good = put(of.good)
			}
			for i := range 5 { // retention keeps the way back
				bad := put(of.bad)
				if bad.Drift.Verdict != ckpt.SeverityWarn || bad.Drift.Clean != ckpt.Ref(good.ID) || bad.Suspect {
					t.Fatalf("%+v %+v", bad, bad.Drift)
				}
				if i == 2 {
					d.reopen()
				}
			}
			if c, err := d.Latest(t.Context(), ann, ckpt.CheckpointFilter{Agent: "a", Run: "main", Clean: true}, true); err != nil || c.ID != good.ID {
				t.Fatalf("the newest clean one is %+v %v", c, err)
			}
			plan, _, err := d.Resume(t.Context(), as(1), ckpt.ResumeRequest{Agent: "a", PID: 1, DryRun: true})
			if err != nil || plan.Verdict != ckpt.VerdictRepair || plan.Checkpoint.ID != good.ID || len(plan.Skipped) != 3 {
				t.Fatalf("%+v %v", plan, err)
			}
			mended := put(of.mended)
			if mended.Drift.Verdict != ckpt.SeverityNone || mended.Drift.Clean != "" {
				t.Fatalf("%+v", mended.Drift)
			}
			d.wantClosed(rule, ckpt.ClosedRecovered)
			if plan = claim(t, d.Store, 1); plan.Verdict != ckpt.VerdictResume || plan.Checkpoint.ID != mended.ID {
				t.Fatalf("%+v", plan)
			}
			d.noViolations()
		})
	}
}

// TestGoingBackClosesWhatCameAfter: restoring the state with the fault leaves its finding open; restoring an earlier
// one closes it.
func TestGoingBackClosesWhatCameAfter(t *testing.T) {
	t.Parallel()
	d := openReal(t)
	start(t, d.Store, 1)
	for i := range 4 {
		d.put(fmt.Sprintf(`{"plan":"p","n":%d}`, i))
	}
	lost := d.put(`{"n":5}`)
	back := func(r ckpt.RestoreRequest) *ckpt.Checkpoint {
		r.Agent = "a"
		c, _, err := d.Restore(t.Context(), ann, r)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	back(ckpt.RestoreRequest{Checkpoint: lost.ID})
	d.wantClosed("lost_keys", "")
	if c := back(ckpt.RestoreRequest{Clean: true}); c.Seq != 4 {
		t.Fatalf("back to %d", c.Seq)
	}
	d.wantClosed("lost_keys", ckpt.ClosedRestored)
	if saved := d.put(`{"plan":"p","n":6}`); saved.Drift.Verdict != ckpt.SeverityNone {
		t.Fatalf("%+v", saved.Drift)
	}
	d.noViolations()
}

// TestOnlyTheStateIsMarked: a used-up budget, a stall and an old checkpoint say nothing about states.
func TestOnlyTheStateIsMarked(t *testing.T) {
	t.Parallel()
	d := openReal(t)
	d.policy(func(p *ckpt.Policy) {
		p.Budget.Steps, p.NoProgressSteps = 10, 5
		p.Detectors["stale_checkpoint"] = ckpt.Detector{Tier: ckpt.TierCritical}
		p.Rules = []ckpt.Rule{{Name: "long", When: "run.steps > 8", Severity: ckpt.SeverityCritical, Message: "It is long."}}
	})
	start(t, d.Store, 1)
	first := d.put(`{"n":1}`)
	progress := 0.5
	if _, err := d.Beat(t.Context(), as(1), mainRun, ckpt.Heartbeat{Progress: &progress}); err != nil {
		t.Fatal(err)
	}
	d.fresh(12)
	d.clock.add(31 * time.Minute)
	d.fresh(1)
	found := map[string]bool{}
	for _, f := range d.report(false).Findings {
		found[f.Rule] = found[f.Rule] || f.Severity == ckpt.SeverityCritical
	}
	for _, rule := range []string{"budget", "no_progress", "long", "stale_checkpoint"} {
		if !found[rule] {
			t.Errorf("%s is not critical: %v", rule, found)
		}
	}
	saved := d.put(`{"n":2}`)
	if saved.Suspect || saved.Drift.Clean != "" || saved.Drift.Verdict != ckpt.SeverityCritical {
		t.Fatalf("%+v %+v", saved, saved.Drift)
	}
	d.wantClosed("stale_checkpoint", ckpt.ClosedRecovered) // this save ended it
	d.wantMarks("o1 o2")
	if plan := claim(t, d.Store, 1); plan.Checkpoint.ID != saved.ID || first.ID == saved.ID {
		t.Fatalf("%+v", plan)
	}
}
