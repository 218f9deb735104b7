package db_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
)

// loop saves a state after each of n identical steps, as looping agents do.
func (d *drifty) loop(n int) (last *ckpt.Step) {
	d.t.Helper()
	for range n {
		last = d.record("search", "nothing")
		d.put(fmt.Sprintf(`{"step":%d}`, d.steps))
	}
	return last
}

// TestCriticalDriftLeavesAWayBack: the policy keeps three routine checkpoints and a loop saves many. Still, the
// clean checkpoint from before the loop is kept, the newest state is kept as a recovery checkpoint, and all
// checkpoints since then are suspect.
func TestCriticalDriftLeavesAWayBack(t *testing.T) {
	t.Parallel()
	d := openDrifty(t)
	d.record("think", "well")
	clean := d.put(`{"step":0}`)
	wantSeverity(t, clean.Drift, ckpt.SeverityNone)
	d.loop(2)
	step := d.record("search", "nothing")
	wantSeverity(t, step.Drift, ckpt.SeverityWarn, "repeat")
	if step.Drift.Advice != "Do something else." || step.Drift.Clean != "" {
		t.Fatalf("%+v", step.Drift)
	}
	d.put(`{"step":4}`)
	d.wantMarks("o1 o2 o3 o4") // the first is kept, though it is not among the newest three
	d.loop(1)
	step = d.record("search", "nothing")
	wantSeverity(t, step.Drift, ckpt.SeverityCritical, "repeat")
	d.wantMarks("o1 o3! o4! o5! e6!")
	f := step.Drift.Findings[0]
	if step.Drift.Clean != ckpt.Ref(clean.ID) || step.Drift.Recovery == "" || f.Checkpoint != step.Drift.Recovery || *f.SinceSeq != 1 || f.Closed != "" {
		t.Fatalf("%+v", step.Drift)
	}
	recovery, err := d.Checkpoint(t.Context(), ann, string(step.Drift.Recovery), true)
	if err != nil || string(recovery.State) != `{"step":5}` || recovery.Kind != ckpt.KindRecovery {
		t.Fatalf("%+v %v", recovery, err)
	}

	late := d.put(`{"step":9}`)
	if !late.Suspect || late.Parent == step.Drift.Recovery {
		t.Fatalf("a save while drifting: %+v", late.Checkpoint)
	}
	wantSeverity(t, late.Drift, ckpt.SeverityCritical)
	d.wantMarks("o1 o4! o5! e6! o7!")
	sound(t, d.options.Path)
}

// TestResumeBeginsAnotherStretch: a run that resumes from the clean checkpoint is clean and counts from zero, and
// the finding stays as history.
func TestResumeBeginsAnotherStretch(t *testing.T) {
	t.Parallel()
	d := openDrifty(t)
	start(t, d.Store, 1)
	clean := d.put(`{"step":0}`)
	wantSeverity(t, d.loop(5).Drift, ckpt.SeverityCritical, "repeat")

	plan := claim(t, d.Store, 1)
	wantVerdict(t, plan, ckpt.VerdictRepair)
	if plan.Checkpoint.ID != clean.ID {
		t.Fatalf("resumes from %s", plan.Checkpoint.ID)
	}
	if why := strings.Join(plan.Reasons, " "); !strings.Contains(why, "repeat: search was called 5 times with the same result") {
		t.Errorf("the reasons do not name the finding: %s", why)
	}
	wantSeverity(t, &d.report(false).DriftVerdict, ckpt.SeverityNone)
	all := d.report(true)
	if f := all.Findings[0]; f.Closed != "resumed" || f.UntilSeq == nil || *f.UntilSeq < *f.SinceSeq || !f.DismissedAt.IsZero() {
		t.Fatalf("%+v", f)
	}
	wantSeverity(t, d.loop(4).Drift, ckpt.SeverityWarn) // the last step of four found nothing new
	saved := d.put(`{"step":99}`)
	if saved.Suspect {
		t.Fatal("a save after going back is suspect")
	}
	d.noViolations()

	// The operator dismisses the finding: the suspect checkpoints become clean.
	id := ""
	for _, f := range all.Findings {
		if f.Severity == ckpt.SeverityCritical {
			id = f.ID
		}
	}
	gone, _, err := d.Dismiss(t.Context(), ann, ckpt.DismissRequest{ID: id, Reason: "it was polling"})
	if err != nil || gone.Closed != "resumed" || gone.DismissedBy != "uid:1001" || len(gone.Cleaned) == 0 {
		t.Fatalf("%+v %v", gone, err)
	}
	if strings.Contains(d.marks(), "!") {
		t.Fatal(d.marks())
	}
	d.noViolations()
	sound(t, d.options.Path)
}

// TestStreakOutlivesTheDaemon: the counts survive a restart after every step.
func TestStreakOutlivesTheDaemon(t *testing.T) {
	t.Parallel()
	d := openDrifty(t)
	d.put(`{"was":1}`)
	for range 4 {
		d.record("search", "nothing")
		d.reopen()
	}
	wantSeverity(t, d.record("search", "nothing").Drift, ckpt.SeverityCritical, "repeat")
	d.reopen()
	step := d.record("search", "nothing")
	wantSeverity(t, step.Drift, ckpt.SeverityCritical) // still open, and not made twice
	if step.Drift.Clean == "" || step.Drift.Recovery == "" {
		t.Fatalf("%+v", step.Drift)
	}
	d.reopen()
	saved := d.put(`{"other":1}`) // the state before the stop is known too
	wantSeverity(t, saved.Drift, ckpt.SeverityCritical, "lost_keys")
	d.noViolations()
}

// TestStepThatBeginsAndEnds: the call is known from the step's beginning and the result from its end, even if the
// daemon restarts in between. A failed attempt with the same key counts.
func TestStepThatBeginsAndEnds(t *testing.T) {
	t.Parallel()
	d := openDrifty(t)
	d.put(`{}`)
	for i := range 5 {
		key := fmt.Sprint("s", i)
		if _, _, err := d.BeginStep(t.Context(), ann, mainRun, ckpt.StepRequest{Key: key, Name: "search", Args: ckpt.JSON(`{"a":1}`)}); err != nil {
			t.Fatal(err)
		}
		d.reopen()
		step, _, err := d.FinishStep(t.Context(), ann, mainRun, ckpt.StepRequest{Key: key, Result: ckpt.JSON(`"nothing"`)})
		if err != nil {
			t.Fatal(err)
		}
		if want := []ckpt.Severity{"none", "none", "warn", "warn", "critical"}[i]; step.Drift.Verdict != want {
			t.Fatalf("step %d: %s", i, step.Drift.Verdict)
		}
	}
	var last *ckpt.Step
	for range 3 {
		var err error
		if last, _, err = d.BeginStep(t.Context(), ann, mainRun, ckpt.StepRequest{Key: "again", Name: "write", Status: ckpt.StepFailed}); err != nil {
			t.Fatal(err)
		}
		d.reopen()
	}
	wantSeverity(t, last.Drift, ckpt.SeverityCritical, "repeat") // the third time
}

// TestRolledBackStepIsNotCounted: a transaction that fails does not change the counts.
func TestRolledBackStepIsNotCounted(t *testing.T) {
	t.Parallel()
	d := openDrifty(t)
	d.put(`{}`)
	d.record("search", "nothing")
	d.record("search", "nothing")
	for range 3 { // each would be the third
		d.detector.flag(func() { d.detector.bogus = true })
		_, _, err := d.BeginStep(t.Context(), ann, mainRun, ckpt.StepRequest{Key: "x", Name: "search", Args: ckpt.JSON(`{"a":1}`), Status: ckpt.StepSucceeded, Result: ckpt.JSON(`"nothing"`)})
		wantCode(t, err, ckpt.CodeConflict)
	}
	wantSeverity(t, d.record("search", "nothing").Drift, ckpt.SeverityWarn, "repeat")
	wantSeverity(t, d.record("search", "nothing").Drift, ckpt.SeverityWarn)
	wantSeverity(t, d.record("search", "nothing").Drift, ckpt.SeverityCritical, "repeat")
}

// TestReplayIsNotCounted: a repeated step or save counts once, and gets the present drift of the run.
func TestReplayIsNotCounted(t *testing.T) {
	t.Parallel()
	d := openDrifty(t)
	r := request("a", ckpt.KindRoutine, `{}`)
	r.ID = "019cad25-8e6c-7a5f-9d0e-3f2f6d3c1a01"
	if _, err := d.Save(t.Context(), ann, r); err != nil {
		t.Fatal(err)
	}
	step := ckpt.StepRequest{Key: "x", Name: "search", Status: ckpt.StepSucceeded, Result: ckpt.JSON(`1`), IdempotencyKey: "once"}
	for i := range 8 {
		got, replayed, err := d.BeginStep(t.Context(), ann, mainRun, step)
		if err != nil || replayed != (i > 0) || got.Drift.Verdict != ckpt.SeverityNone {
			t.Fatalf("%+v %t %v", got, replayed, err)
		}
	}
	for range 5 {
		d.record("search", "nothing")
	}
	got, replayed, err := d.BeginStep(t.Context(), ann, mainRun, step)
	if err != nil || !replayed {
		t.Fatal(replayed, err)
	}
	wantSeverity(t, got.Drift, ckpt.SeverityCritical)
	saved, err := d.Save(t.Context(), ann, r)
	if err != nil || !saved.Replayed || saved.Suspect {
		t.Fatalf("%+v %v", saved, err)
	}
	wantSeverity(t, saved.Drift, ckpt.SeverityCritical)
}

// TestDismiss: only checkpoints that no other finding covers become clean. A repeated dismissal changes nothing.
// Another owner's finding is not found.
func TestDismiss(t *testing.T) {
	t.Parallel()
	d := openDrifty(t)
	d.policy(func(p *ckpt.Policy) { p.RoutineKeep = 0 })
	d.put(`{"n":1}`)
	d.put(`{"n":2,"bad":true}`)
	first := d.report(false).Findings[0]
	d.put(`{"n":4}`)
	d.put(`{"n":5,"bad":true}`)
	second := d.report(false).Findings[0]
	d.wantMarks("o1 o2! e3! o4! o5!")
	if first.ID == second.ID || *second.SinceSeq != 4 || second.Checkpoint != first.Checkpoint {
		t.Fatalf("%+v %+v", first, second)
	}
	_, _, err := d.Dismiss(t.Context(), bob, ckpt.DismissRequest{ID: first.ID})
	wantCode(t, err, ckpt.CodeNotFound)
	got, _, err := d.Dismiss(t.Context(), ann, ckpt.DismissRequest{ID: first.ID, Reason: "no"})
	if err != nil || len(got.Cleaned) != 3 || got.Closed != "dismissed" || got.Drift.Verdict != ckpt.SeverityCritical {
		t.Fatalf("%+v %v", got, err)
	}
	d.wantMarks("o1 o2 e3 o4 o5!")
	_, _, err = d.Dismiss(t.Context(), bob, ckpt.DismissRequest{ID: first.ID})
	wantCode(t, err, ckpt.CodeNotFound)
	if again, _, err := d.Dismiss(t.Context(), ann, ckpt.DismissRequest{ID: first.ID}); err != nil || len(again.Cleaned) != 0 || again.DismissedAt != got.DismissedAt {
		t.Fatalf("%+v %v", again, err)
	}
	if saved := d.put(`{"n":6}`); !saved.Suspect {
		t.Fatal("the second is still open")
	}
	if got, _, err = d.Dismiss(t.Context(), root, ckpt.DismissRequest{ID: second.ID}); err != nil || got.Drift.Verdict != ckpt.SeverityNone || got.DismissedBy != "uid:0" {
		t.Fatalf("%+v %v", got, err)
	}
	d.wantMarks("o1 o2 e3 o4 o5 o6")
	if d.put(`{"n":7}`).Suspect {
		t.Fatal("nothing is open")
	}
	if n := sqlite3(t, d.options.Path, `SELECT count(*) FROM audit_log WHERE action = 'dismiss_finding' AND outcome = 'done'`); n != "2" {
		t.Errorf("%s audit rows of two dismissals", n)
	}
	sound(t, d.options.Path)
}

// TestRestoreCloses: restoring a clean checkpoint closes the findings, restoring a suspect one does not.
func TestRestoreCloses(t *testing.T) {
	t.Parallel()
	d := openDrifty(t)
	d.put(`{"n":1}`)
	bad := d.put(`{"n":2,"bad":true}`)
	if _, _, err := d.Restore(t.Context(), ann, ckpt.RestoreRequest{Agent: "a", Checkpoint: bad.ID}); err != nil {
		t.Fatal(err)
	}
	if !d.put(`{"n":3}`).Suspect {
		t.Fatal("it stands on a suspect state")
	}
	c, _, err := d.Restore(t.Context(), ann, ckpt.RestoreRequest{Agent: "a", Clean: true})
	if err != nil || c.Seq != 1 {
		t.Fatalf("%+v %v", c, err)
	}
	wantSeverity(t, &d.report(false).DriftVerdict, ckpt.SeverityNone)
	if f := d.report(true).Findings[0]; f.Closed != "restored" {
		t.Fatalf("%+v", f)
	}
	saved := d.put(`{"n":4}`)
	if saved.Suspect || string(saved.Parent) != c.ID {
		t.Fatalf("%+v", saved)
	}
	d.noViolations()
}

// TestPosted: an agent's own finding counts like any other.
func TestPosted(t *testing.T) {
	t.Parallel()
	d := openDrifty(t)
	d.put(`{"n":1}`)
	d.put(`{"n":2}`)
	post := func(r ckpt.FindingRequest) (*ckpt.PostedFinding, error) {
		got, _, err := d.PostFinding(t.Context(), ann, "a", r)
		return got, err
	}
	got, err := post(ckpt.FindingRequest{Rule: "tired", Severity: ckpt.SeverityWarn, Message: "I repeat myself.", Evidence: ckpt.JSON(`{"n":3}`)})
	if err != nil || got.ID == "" || got.Drift.Verdict != ckpt.SeverityWarn || string(got.Evidence) != `{"n":3}` {
		t.Fatalf("%+v %v", got, err)
	}
	for _, bad := range []ckpt.FindingRequest{
		{Rule: "x y", Severity: ckpt.SeverityWarn, Message: "m"}, {Rule: "x", Severity: "none", Message: "m"}, {Rule: "x", Severity: ckpt.SeverityInfo},
		{Rule: "x", Severity: ckpt.SeverityInfo, Message: "m", Evidence: ckpt.JSON(`[1]`)},
	} {
		_, err := post(bad)
		wantCode(t, err, ckpt.CodeInvalid)
	}
	old := int64(7)
	_, err = post(ckpt.FindingRequest{Rule: "x", Severity: ckpt.SeverityInfo, Message: "m", Epoch: &old})
	wantCode(t, err, ckpt.CodeInvalid)
	one := int64(1)
	got, err = post(ckpt.FindingRequest{Rule: "lost", Severity: ckpt.SeverityCritical, Message: "I lost my plan.", SinceSeq: &one})
	if err != nil || got.Drift.Verdict != ckpt.SeverityCritical || got.Drift.Recovery != got.Checkpoint {
		t.Fatalf("%+v %v", got, err)
	}
	d.wantMarks("o1 o2! e3!")
	if n := sqlite3(t, d.options.Path, `SELECT group_concat(who, ' ') FROM audit_log WHERE action = 'finding' AND outcome = 'done'`); n != "uid:1001 uid:1001" {
		t.Errorf("noted by %s", n)
	}
}

// TestFindingsAreBounded: beyond the limit no finding is recorded, except the first critical one.
func TestFindingsAreBounded(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	d := openDrifty(t)
	d.put(`{"n":1}`)
	note := ckpt.FindingRequest{Rule: "x", Severity: ckpt.SeverityInfo, Message: "m"}
	for range ckpt.MaxFindings {
		if _, _, err := d.PostFinding(t.Context(), ann, "a", note); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := d.PostFinding(t.Context(), ann, "a", note)
	wantCode(t, err, ckpt.CodeConflict)
	saved := d.put(`{"bad":true}`)
	wantSeverity(t, saved.Drift, ckpt.SeverityCritical, "bad_state")
	saved = d.put(`{"bad":true}`)
	wantSeverity(t, saved.Drift, ckpt.SeverityCritical)
	d.noViolations()
}

// TestSchema: a state that does not match is refused with the place of the mistake, for every kind, or only
// reported.
func TestSchema(t *testing.T) {
	t.Parallel()
	d := openDrifty(t)
	before := request("a", ckpt.KindRoutine, `{}`)
	before.ID = "019cad25-8e6c-7a5f-9d0e-3f2f6d3c1a02"
	if _, err := d.Save(t.Context(), ann, before); err != nil {
		t.Fatal(err)
	}
	d.policy(func(p *ckpt.Policy) { p.Schema = ckpt.JSON(`{}`) })
	_, err := d.Save(t.Context(), ann, request("a", ckpt.KindRecovery, `{"n":1}`))
	wantCode(t, err, ckpt.CodeSchemaMismatch)
	if text := err.Error(); !strings.Contains(text, `"/ok"`) || !strings.Contains(text, "schema_mode") {
		t.Error(text)
	}
	if n := sqlite3(t, d.options.Path, `SELECT count(*) FROM audit_log WHERE outcome = 'schema_mismatch' AND action = 'save'`); n != "1" {
		t.Errorf("%s refusals are recorded", n)
	}
	if saved, err := d.Save(t.Context(), ann, before); err != nil || !saved.Replayed {
		t.Fatalf("what was saved before the schema came: %v", err)
	}
	_, _, err = d.BeginOperation(t.Context(), ann, mainRun, ckpt.OperationRequest{Key: "o", Name: "o", State: ckpt.JSON(`{}`)})
	wantCode(t, err, ckpt.CodeSchemaMismatch)
	_, _, err = d.EndRun(t.Context(), ann, mainRun, ckpt.EndRequest{Status: ckpt.RunCompleted, State: ckpt.JSON(`{}`)})
	wantCode(t, err, ckpt.CodeSchemaMismatch)
	d.put(`{"ok":1}`)
	d.wantMarks("o1 o2")

	d.policy(func(p *ckpt.Policy) { p.Schema, p.SchemaMode = ckpt.JSON(`{}`), ckpt.SchemaReport })
	saved := d.put(`{}`)
	wantSeverity(t, saved.Drift, ckpt.SeverityCritical, "schema")
	d.wantMarks("o1 o2 o3! e4!")
}

// TestRulesOfTheUsersOwn: users' rules see the run, its counts and the whole step. A bad rule is refused with the
// place of the mistake.
func TestRulesOfTheUsersOwn(t *testing.T) {
	t.Parallel()
	d := openDrifty(t)
	p := ckpt.DefaultPolicy()
	p.Rules = []ckpt.Rule{{Name: "r", When: "is", Severity: ckpt.SeverityWarn, Message: "m"}}
	_, err := d.SetPolicy(t.Context(), ann, "a", p)
	if wantCode(t, err, ckpt.CodeInvalid); !strings.Contains(err.Error(), "rules[0].when") {
		t.Error(err)
	}
	d.policy(func(p *ckpt.Policy) {
		p.Rules = []ckpt.Rule{{Name: "no_rm", When: "has rm -rf", Severity: ckpt.SeverityCritical, Message: "m"}}
	})
	if _, _, err := d.StartRun(t.Context(), ann, ckpt.RunRequest{Agent: "a", Goal: "tidy up"}); err != nil {
		t.Fatal(err)
	}
	d.put(`{"n":1}`)
	d.record("think", "well")
	if _, _, err := d.BeginStep(t.Context(), ann, mainRun, ckpt.StepRequest{Key: "x", Name: "shell", Args: ckpt.JSON(`"rm -rf /"`)}); err != nil {
		t.Fatal(err)
	}
	step, _, err := d.FinishStep(t.Context(), ann, mainRun, ckpt.StepRequest{Key: "x"})
	if err != nil {
		t.Fatal(err)
	}
	wantSeverity(t, step.Drift, ckpt.SeverityCritical, "no_rm")
	if m := step.Drift.Findings[0].Message; m != `m, goal "tidy up", 1 counted` {
		t.Error(m)
	}
}

// TestGoal: a goal that differs from the known one makes a finding, unless a goal_update event allows the change.
func TestGoal(t *testing.T) {
	t.Parallel()
	d := openDrifty(t)
	begin := func(goal ckpt.Ref) {
		t.Helper()
		if _, _, err := d.StartRun(t.Context(), ann, ckpt.RunRequest{Agent: "a", Goal: goal}); err != nil {
			t.Fatal(err)
		}
		d.reopen()
	}
	event := func(payload string) {
		t.Helper()
		if _, _, err := d.Append(t.Context(), ann, mainRun, []ckpt.NewEvent{{Type: "goal_update", Payload: ckpt.JSON(payload)}}, ""); err != nil {
			t.Fatal(err)
		}
		d.reopen()
	}
	begin("one")
	begin("one")
	wantSeverity(t, &d.report(false).DriftVerdict, ckpt.SeverityNone)
	event(`{"goal":"two"}`)
	begin("two")
	event(`{}`)
	begin("three")
	wantSeverity(t, &d.report(false).DriftVerdict, ckpt.SeverityNone)
	begin("four")
	wantSeverity(t, &d.report(false).DriftVerdict, ckpt.SeverityWarn, "goal_changed")
	if m := d.report(false).Findings[0].Message; m != "The goal was three, now it is four." {
		t.Error(m)
	}
}

// TestMistakenDetectorStopsNoSave: a panic in any part of a detector loses its findings and nothing else.
func TestMistakenDetectorStopsNoSave(t *testing.T) {
	t.Parallel()
	d := openDrifty(t)
	d.put(`{"n":1}`)
	d.detector.flag(func() { d.detector.panics = true })
	wantSeverity(t, d.put(`{"n":2}`).Drift, ckpt.SeverityNone)
	wantSeverity(t, d.record("search", "nothing").Drift, ckpt.SeverityNone)
	d.detector.flag(func() { d.detector.panics = false })
	d.reopen()
	wantSeverity(t, d.put(`{"bad":true}`).Drift, ckpt.SeverityCritical, "bad_state")
}

// TestFewWatches: with room for one watch, two runs alternate and both are counted correctly.
func TestFewWatches(t *testing.T) {
	t.Parallel()
	d := openDrifty(t, func(o *db.Options) { o.Watches = 1 })
	for i := range 5 {
		for _, run := range []string{"one", "two", "three"} {
			step, _, err := d.BeginStep(t.Context(), ann, ckpt.RunRef{Agent: "a", Run: run}, ckpt.StepRequest{Key: fmt.Sprint(i), Name: "search", Status: ckpt.StepSucceeded, Result: ckpt.JSON(`0`)})
			if err != nil {
				t.Fatal(err)
			}
			if want := []ckpt.Severity{"none", "none", "warn", "warn", "critical"}[i]; step.Drift.Verdict != want {
				t.Fatalf("step %d of %s: %s", i, run, step.Drift.Verdict)
			}
		}
	}
	st, err := d.Status(t.Context(), root)
	if err != nil || st.Drift.Watched != 1 || len(st.Drift.Findings) != 2 || st.Drift.Findings[0] != (ckpt.FindingCount{Rule: "repeat", Severity: "critical", Count: 3}) {
		t.Fatalf("%+v %v", st.Drift, err)
	}
}

// TestAWatchMadeAnewKnowsTheProgress: a save creates the watch of its run again, after a heartbeat has declared
// progress that no save has seen.
func TestAWatchMadeAnewKnowsTheProgress(t *testing.T) {
	t.Parallel()
	d := openDrifty(t, func(o *db.Options) { o.Watches = 1 })
	saveIn := func(run string) {
		t.Helper()
		r := request("a", ckpt.KindRoutine, `1`)
		r.Run = run
		_, err := d.Save(t.Context(), ann, r)
		must(t, err)
	}
	for _, run := range []string{"one", "two", "one", "two"} { // the second time, the run cache has the run
		saveIn(run)
	}
	half := 0.5
	_, err := d.Beat(t.Context(), ann, ckpt.RunRef{Agent: "a", Run: "one"}, ckpt.Heartbeat{Progress: &half})
	must(t, err)
	saveIn("two")
	saveIn("one")
	d.detector.flag(func() {
		if d.detector.begun == nil || *d.detector.begun != half {
			t.Errorf("the watch begins with progress %v", d.detector.begun)
		}
	})
}

// TestOffIsOff: with sensitivity off nothing is counted. When it is on again, counting starts with the next step.
func TestOffIsOff(t *testing.T) {
	t.Parallel()
	d := openDrifty(t)
	d.policy(func(p *ckpt.Policy) { p.Sensitivity = ckpt.SensitivityOff })
	for range 9 {
		wantSeverity(t, d.record("search", "nothing").Drift, ckpt.SeverityNone)
	}
	wantSeverity(t, d.put(`{"bad":true}`).Drift, ckpt.SeverityNone)
	d.policy(func(*ckpt.Policy) {})
	d.record("search", "nothing")
	wantSeverity(t, d.record("search", "nothing").Drift, ckpt.SeverityNone)
	wantSeverity(t, d.record("search", "nothing").Drift, ckpt.SeverityWarn, "repeat")
}

// TestSecretsAreNoDrift: what looks like a secret is in a list of its own, and not in the verdict. A resume does not
// close the finding.
func TestSecretsAreNoDrift(t *testing.T) {
	t.Parallel()
	d := openDrifty(t, func(o *db.Options) { o.Secrets = someSecrets{} })
	start(t, d.Store, 1)
	first := d.put(`{"password":"x"}`)
	if wantSeverity(t, first.Drift, ckpt.SeverityNone); len(first.Drift.Secrets) != 1 || first.Drift.Secrets[0].Severity != ckpt.SeverityWarn {
		t.Fatalf("%+v", first.Drift)
	}
	if again := d.put(`{"password":"x"}`); len(again.Drift.Secrets) != 0 {
		t.Fatalf("found again: %+v", again.Drift)
	}
	claim(t, d.Store, 1)
	wantSeverity(t, d.put(`{"password":"x"}`).Drift, ckpt.SeverityNone)
	if r := d.report(false); len(r.Secrets) != 1 || len(r.Findings) != 0 || r.Verdict != ckpt.SeverityNone {
		t.Fatalf("%+v", r)
	}
}

type someSecrets struct{}

func (someSecrets) Find([]byte, bool) []secrets.Secret {
	return []secrets.Secret{{Path: "/password", Kind: "a password"}}
}

func (s someSecrets) FindAfter(state []byte, _ jsontext.Checked, _ secrets.Seen) ([]secrets.Secret, secrets.Seen) {
	return s.Find(state, true), nil
}

func (s someSecrets) FindBytesAfter(state []byte, _ []jsontext.Copy, _ secrets.Seen) ([]secrets.Secret, secrets.Seen) {
	return s.Find(state, false), nil
}

func (someSecrets) Redact(state []byte, _ bool) ([]byte, []secrets.Secret) { return state, nil }

// TestHeldCheckpointGoes: when the suspicion of drift has passed, the checkpoint that was kept for it is removed in
// the same transaction.
func TestHeldCheckpointGoes(t *testing.T) {
	t.Parallel()
	d := openDrifty(t)
	d.put(`{"n":1}`)
	d.record("search", "nothing")
	d.put(`{"n":2}`)
	d.record("search", "nothing")
	for i := range 4 {
		d.put(fmt.Sprintf(`{"n":%d}`, i+3))
	}
	d.wantMarks("o1 o4 o5 o6")
	d.record("search", "nothing")
	for _, f := range d.report(false).Findings { // this makes the detector forget what it counted
		if _, _, err := d.Dismiss(t.Context(), ann, ckpt.DismissRequest{ID: f.ID}); err != nil {
			t.Fatal(err)
		}
	}
	d.wantMarks("o4 o5 o6")
}

// TestHeldCheckpointMayBeDeleted: a held checkpoint can be deleted by hand, like the newest one.
func TestHeldCheckpointMayBeDeleted(t *testing.T) {
	t.Parallel()
	d := openDrifty(t)
	first := d.put(`{"n":1}`)
	d.loop(2)
	d.loop(2)
	d.wantMarks("o1 o3 o4 o5")
	if _, err := d.Delete(t.Context(), ann, first.ID); err != nil {
		t.Fatal(err)
	}
	d.wantMarks("o3 o4 o5")
}

// TestEverythingOfAnErasedAgentGoes: an erasure also removes the watches of the agent's runs, because the numbers
// of those runs can be used again.
func TestEverythingOfAnErasedAgentGoes(t *testing.T) {
	t.Parallel()
	d := openDrifty(t)
	d.loop(4)
	if _, err := d.Erase(t.Context(), ann, "a"); err != nil {
		t.Fatal(err)
	}
	if st, err := d.Status(t.Context(), root); err != nil || st.Drift.Watched != 0 || len(st.Drift.Findings) != 0 {
		t.Fatalf("%+v %v", st.Drift, err)
	}
	d.put(`{"n":1}`)
	wantSeverity(t, d.record("search", "nothing").Drift, ckpt.SeverityNone)
}

// TestTickFindsWhatIsStale: a tick finds stale runs that are known to be alive, once.
func TestTickFindsWhatIsStale(t *testing.T) {
	t.Parallel()
	d := openDrifty(t)
	start(t, d.Store, 1)
	d.put(`{"n":1}`)
	save(t, d.Store, ann, "b", ckpt.KindRoutine, `{}`) // nothing is known about this run's process
	d.clock.add(29 * time.Minute)
	tick := func() {
		t.Helper()
		d.ForgetTicks()
		if err := d.TickDrift(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	tick()
	wantSeverity(t, &d.report(false).DriftVerdict, ckpt.SeverityNone)
	d.clock.add(time.Minute)
	d.reopen()
	tick()
	tick()
	wantSeverity(t, &d.report(false).DriftVerdict, ckpt.SeverityWarn, "stale_checkpoint")
	other, err := d.Drift(t.Context(), ann, ckpt.DriftFilter{Agent: "b"})
	if err != nil || len(other.Findings) != 0 {
		t.Fatalf("%+v %v", other, err)
	}
	run, err := d.Beat(t.Context(), ann, mainRun, ckpt.Heartbeat{})
	if err != nil {
		t.Fatal(err)
	}
	wantSeverity(t, run.Drift, ckpt.SeverityWarn)
}

// TestTickReachesAllRuns: if one tick cannot check all runs, the next one continues.
func TestTickReachesAllRuns(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	d := openDrifty(t)
	var agents []string
	for i := range 120 {
		agents = append(agents, fmt.Sprintf("agent%d", i))
		if _, _, err := d.StartRun(t.Context(), as(1), ckpt.RunRequest{Agent: agents[i], PID: 1}); err != nil {
			t.Fatal(err)
		}
		save(t, d.Store, ann, agents[i], ckpt.KindRoutine, `{}`)
	}
	d.clock.add(time.Hour)
	for range 2 {
		d.ForgetTicks()
		if err := d.TickDrift(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, agent := range agents {
		report, err := d.Drift(t.Context(), ann, ckpt.DriftFilter{Agent: agent})
		if err != nil {
			t.Fatal(err)
		}
		wantSeverity(t, &report.DriftVerdict, ckpt.SeverityWarn, "stale_checkpoint")
	}
}

// TestSharedKeys: agents of one owner that disagree for longer than the grace period each get one warning about the
// others. After they agree, a new disagreement warns again.
func TestSharedKeys(t *testing.T) {
	t.Parallel()
	d := openDrifty(t)
	share := func(sc ckpt.Scope, agent string, pointers ...string) {
		t.Helper()
		p := ckpt.DefaultPolicy()
		p.SharedKeys = pointers
		if _, err := d.SetPolicy(t.Context(), sc, agent, p); err != nil {
			t.Fatal(err)
		}
	}
	tick := func(after time.Duration) {
		t.Helper()
		d.clock.add(after)
		if err := d.TickDrift(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	found := func(sc ckpt.Scope, agent string) []ckpt.Finding {
		t.Helper()
		r, err := d.Drift(t.Context(), sc, ckpt.DriftFilter{Agent: agent})
		if err != nil {
			t.Fatal(err)
		}
		return r.Findings
	}
	save(t, d.Store, ann, "a", ckpt.KindRoutine, `{"task":{"status":"open"},"v":1.0}`)
	for _, agent := range []string{"a", "b", "c"} {
		share(ann, agent, "/task/status", "/v", "/nowhere")
	}
	share(bob, "a", "/v")
	save(t, d.Store, bob, "a", ckpt.KindRoutine, `{"v":99}`) // it belongs to another owner
	save(t, d.Store, ann, "b", ckpt.KindRoutine, `{"v":1,"task":{"status":"done"}}`)
	save(t, d.Store, ann, "c", ckpt.KindRoutine, `{"v":1e0}`) // this state has no such task
	d.reopen()                                                // the shared values are read once
	tick(time.Second)
	tick(58 * time.Second)
	if n := len(found(ann, "a")); n != 0 {
		t.Fatalf("%d findings before they had time to settle", n)
	}
	tick(2 * time.Second)
	for agent, other := range map[string]string{"a": "b", "b": "a"} {
		list := found(ann, agent)
		if len(list) != 1 || list[0].Rule != "shared_keys" || list[0].Severity != ckpt.SeverityWarn || list[0].Checkpoint == "" ||
			!strings.Contains(string(list[0].Evidence), `"others":["`+other+`"]`) || !strings.Contains(list[0].Message, "/task/status") {
			t.Fatalf("%s: %+v", agent, list)
		}
	}
	if len(found(ann, "c")) != 0 || len(found(bob, "a")) != 0 {
		t.Fatal("who has no part in it is warned")
	}
	tick(time.Hour)
	if len(found(ann, "a")) != 1 {
		t.Fatal("warned again")
	}
	for _, agent := range []string{"a", "b"} {
		if _, _, err := d.Dismiss(t.Context(), ann, ckpt.DismissRequest{ID: found(ann, agent)[0].ID}); err != nil {
			t.Fatal(err)
		}
	}
	tick(time.Hour)
	if len(found(ann, "a")) != 0 {
		t.Fatal("warned of what was dismissed")
	}
	save(t, d.Store, ann, "b", ckpt.KindRoutine, `{"task":{"status":"open"}}`)
	tick(time.Second)
	save(t, d.Store, ann, "b", ckpt.KindRoutine, `{"task":{"status":"done"}}`)
	tick(2 * time.Minute)
	if len(found(ann, "b")) != 1 {
		t.Fatal("a new disagreement is not seen")
	}
	d.clock.add(time.Second)
	if _, _, err := d.EndRun(t.Context(), ann, ckpt.RunRef{Agent: "b"}, ckpt.EndRequest{Status: ckpt.RunCompleted}); err != nil {
		t.Fatal(err)
	}
	save(t, d.Store, ann, "a", ckpt.KindRoutine, `{"task":{"status":"shut"}}`)
	tick(time.Hour)
	if n := len(found(ann, "a")); n != 0 {
		t.Fatalf("%d findings: who has ended takes no part", n)
	}
	d.wantClosed("shared_keys", ckpt.ClosedRecovered)
	d.noViolations()
}

// TestDamagedRunHoldsUpNoTick: a run whose row is damaged cannot be checked. The tick reports that, and checks the
// others.
func TestDamagedRunHoldsUpNoTick(t *testing.T) {
	t.Parallel()
	d := openDrifty(t)
	for i, agent := range []string{"bad", "a", "b"} {
		if _, _, err := d.StartRun(t.Context(), as(1), ckpt.RunRequest{Agent: agent, PID: 1}); err != nil {
			t.Fatal(err)
		}
		save(t, d.Store, ann, agent, ckpt.KindRoutine, fmt.Sprintf(`{"v":%d}`, i))
		d.sharing(agent, "/v")
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	sql(t, d.options.Path, `UPDATE runs SET segment_at = 'x' WHERE agent_id = (SELECT id FROM agents WHERE name = 'bad')`)
	d.Store = openWith(t, d.options)
	d.clock.add(time.Hour)
	if err := d.TickDrift(t.Context()); err == nil {
		t.Error("the damage is not reported")
	}
	for _, agent := range []string{"a", "b"} {
		r, err := d.Drift(t.Context(), ann, ckpt.DriftFilter{Agent: agent})
		if err != nil {
			t.Fatal(err)
		}
		wantSeverity(t, &r.DriftVerdict, ckpt.SeverityWarn, "shared_keys", "stale_checkpoint")
	}
}

// TestDamagedRunHoldsUpNoMonitor: a run with a damaged time is watched as if it had none. The others are watched as
// they are.
func TestDamagedRunHoldsUpNoMonitor(t *testing.T) {
	t.Parallel()
	d := openDrifty(t)
	for _, agent := range []string{"bad", "a"} {
		if _, _, err := d.StartRun(t.Context(), as(1), ckpt.RunRequest{Agent: agent, PID: 1}); err != nil {
			t.Fatal(err)
		}
	}
	before, err := d.Watched(t.Context(), 0, 10)
	if err != nil || len(before) != 2 {
		t.Fatalf("%+v %v", before, err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	sql(t, d.options.Path, `UPDATE runs SET heartbeat_at = 'x', started_at = 'x', updated_at = 'x', progress_at = 'x'
		WHERE agent_id = (SELECT id FROM agents WHERE name = 'bad')`)
	d.Store = openWith(t, d.options)
	after, err := d.Watched(t.Context(), 0, 10)
	if err != nil || len(after) != 2 || after[1] != before[1] || after[0].Process != before[0].Process || !after[0].LastBeat.IsZero() {
		t.Errorf("before %+v\nafter %+v, %v", before, after, err)
	}
}

// sharing sets the places at which an agent must agree with others.
func (d *drifty) sharing(agent string, pointers ...string) {
	d.t.Helper()
	p := ckpt.DefaultPolicy()
	p.SharedKeys = pointers
	if _, err := d.SetPolicy(d.t.Context(), ann, agent, p); err != nil {
		d.t.Fatal(err)
	}
}

// tick lets time pass, ticks, and returns how many open findings an agent has.
func (d *drifty) tick(after time.Duration, agent string) int {
	d.t.Helper()
	d.clock.add(after)
	if err := d.TickDrift(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
	r, err := d.Drift(d.t.Context(), ann, ckpt.DriftFilter{Agent: agent})
	if err != nil {
		d.t.Fatal(err)
	}
	return len(r.Findings)
}

// TestSharedKeysWarnWhoComesLater: an agent that joins a disagreement is warned too, after the same grace period, and
// nobody is warned twice.
func TestSharedKeysWarnWhoComesLater(t *testing.T) {
	t.Parallel()
	d := openDrifty(t)
	for agent, state := range map[string]string{"a": `{"v":1}`, "b": `{"v":2}`, "c": `{}`} {
		save(t, d.Store, ann, agent, ckpt.KindRoutine, state)
		d.sharing(agent, "/v")
	}
	d.tick(time.Second, "a")
	if n := d.tick(2*time.Minute, "a"); n != 1 {
		t.Fatalf("%d findings of a", n)
	}
	save(t, d.Store, ann, "c", ckpt.KindRoutine, `{"v":1}`)
	if n := d.tick(time.Second, "c"); n != 0 {
		t.Errorf("%d findings of c before it had time to settle", n)
	}
	save(t, d.Store, ann, "c", ckpt.KindRoutine, `{"v":3}`)
	if n := d.tick(time.Minute, "c"); n != 1 {
		t.Errorf("%d findings of c", n)
	}
	for _, agent := range []string{"a", "b", "c"} {
		if n := d.tick(time.Hour, agent); n != 1 {
			t.Errorf("%d findings of %s in the end", n, agent)
		}
	}
	d.noViolations()
}

// TestSharedKeysOfParallelRuns: an agent whose runs save in turns is warned of a disagreement that outlasts the grace
// period, each of its runs once.
func TestSharedKeysOfParallelRuns(t *testing.T) {
	t.Parallel()
	d := openDrifty(t)
	d.sharing("a", "/v")
	d.sharing("b", "/v")
	save(t, d.Store, ann, "a", ckpt.KindRoutine, `{"v":1}`)
	turn := func(run string) {
		t.Helper()
		r := request("b", ckpt.KindRoutine, `{"v":2}`)
		r.Run = run
		if _, err := d.Save(t.Context(), ann, r); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 {
		for _, run := range []string{"r1", "r2"} {
			turn(run)
			d.tick(20*time.Second, "a")
		}
	}
	for _, run := range []string{"r1", "r2"} {
		r, err := d.Drift(t.Context(), ann, ckpt.DriftFilter{Agent: "b", Run: run})
		if err != nil || len(r.Findings) != 1 {
			t.Errorf("findings of %s: %+v %v", run, r, err)
		}
	}
	if n := d.tick(time.Second, "a"); n != 1 {
		t.Errorf("%d findings of a", n)
	}
	d.noViolations()
}

// TestSharedKeysOfWhatARunLeft: the values of a state that a run has left do not count. If it goes back to a state, the
// values of that state count from then on.
func TestSharedKeysOfWhatARunLeft(t *testing.T) {
	t.Parallel()
	want := func(t *testing.T, d *drifty, after time.Duration, want int) {
		t.Helper()
		if n := d.tick(after, "b"); n != want {
			t.Errorf("%d findings, want %d", n, want)
		}
	}
	sharing := func(t *testing.T, a string) *drifty {
		d := openDrifty(t)
		save(t, d.Store, ann, "a", ckpt.KindRoutine, a)
		d.sharing("a", "/v")
		d.sharing("b", "/v")
		return d
	}
	restore := func(t *testing.T, d *drifty, id string) {
		t.Helper()
		if _, _, err := d.Restore(t.Context(), ann, ckpt.RestoreRequest{Agent: "b", Checkpoint: id}); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("begun again", func(t *testing.T) {
		d := sharing(t, `{"v":1}`)
		save(t, d.Store, ann, "b", ckpt.KindRoutine, `{"v":2}`)
		want(t, d, time.Second, 0)
		if _, _, err := d.EndRun(t.Context(), ann, ckpt.RunRef{Agent: "b"}, ckpt.EndRequest{Status: ckpt.RunCompleted}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := d.StartRun(t.Context(), ann, ckpt.RunRequest{Agent: "b"}); err != nil {
			t.Fatal(err)
		}
		want(t, d, time.Hour, 0)
		save(t, d.Store, ann, "b", ckpt.KindRoutine, `{"v":2}`)
		want(t, d, 30*time.Second, 0)
		want(t, d, time.Minute, 1)
	})
	t.Run("back to what the others have", func(t *testing.T) {
		d := sharing(t, `{"v":1}`)
		early := save(t, d.Store, ann, "b", ckpt.KindRoutine, `{"v":1}`)
		save(t, d.Store, ann, "b", ckpt.KindRoutine, `{"v":2}`)
		want(t, d, time.Second, 0)
		restore(t, d, early.ID)
		want(t, d, time.Hour, 0)
	})
	t.Run("back to what the others had", func(t *testing.T) {
		d := sharing(t, `{"v":1}`)
		early := save(t, d.Store, ann, "b", ckpt.KindRoutine, `{"v":2}`)
		save(t, d.Store, ann, "b", ckpt.KindRoutine, `{"v":1}`)
		want(t, d, time.Hour, 0)
		restore(t, d, early.ID)
		want(t, d, time.Second, 0)
		want(t, d, 30*time.Second, 0)
		want(t, d, time.Minute, 1)
	})
}

// TestMoreSharedKeysOfIdleAgents: after shared keys were added, the states of agents that save nothing are read once,
// a part of them in each tick.
func TestMoreSharedKeysOfIdleAgents(t *testing.T) {
	t.Parallel()
	d := openDrifty(t)
	const many = 25 // more than one tick reads
	var agents []string
	for i := range many {
		agents = append(agents, fmt.Sprint("agent", i))
		d.sharing(agents[i], "/v")
		state := `{"v":1}`
		if i >= many-2 {
			state = fmt.Sprintf(`{"v":1,"w":%d}`, i)
		}
		save(t, d.Store, ann, agents[i], ckpt.KindRoutine, state)
	}
	last := agents[many-1]
	d.tick(time.Second, last)
	for _, agent := range agents {
		d.sharing(agent, "/v", "/w")
	}
	d.tick(time.Second, last)
	d.tick(time.Second, last)
	if n := d.tick(2*time.Minute, last); n != 1 {
		t.Errorf("%d findings", n)
	}
}

// TestDamageIsNotedOnce: damage is recorded once, however often it is met, and makes no checkpoint suspect.
func TestDamageIsNotedOnce(t *testing.T) {
	t.Parallel()
	d := openDrifty(t)
	start(t, d.Store, 1)
	d.put(`{"n":1}`)
	bad := d.put(`{"n":2}`)
	err := d.Write("daemon", 0, func(exec func(string, ...any) error) error {
		return exec(`UPDATE checkpoints SET body = CAST('{"n":9}' AS BLOB) WHERE id = ?`, bad.ID)
	})
	if err != nil {
		t.Fatal(err)
	}
	plan, _, err := d.Resume(t.Context(), as(1), ckpt.ResumeRequest{Agent: "a", PID: 1, DryRun: true})
	if err != nil || plan.Checkpoint.Seq != 1 {
		t.Fatalf("%+v %v", plan, err)
	}
	for range 2 {
		_, err = d.Checkpoint(t.Context(), ann, bad.ID, true)
		wantCode(t, err, ckpt.CodeCorrupt)
		_, _, err = d.Restore(t.Context(), ann, ckpt.RestoreRequest{Agent: "a", Checkpoint: bad.ID})
		wantCode(t, err, ckpt.CodeCorrupt)
		_, err = d.Latest(t.Context(), ann, ckpt.CheckpointFilter{Agent: "a"}, true)
		wantCode(t, err, ckpt.CodeCorrupt)
		d.reopen()
	}
	r := d.report(true)
	wantSeverity(t, &r.DriftVerdict, ckpt.SeverityCritical, "corruption")
	if f := r.Findings[0]; f.Checkpoint != ckpt.Ref(bad.ID) || f.SinceSeq != nil || r.Clean != "" || !strings.Contains(f.Message, "hash") {
		t.Fatalf("%+v", f)
	}
	claim(t, d.Store, 1)
	if saved := d.put(`{"n":3}`); saved.Suspect || saved.Drift.Verdict != ckpt.SeverityNone {
		t.Fatalf("damage elsewhere makes nothing suspect, and this state is stored whole: %+v", saved)
	}
	if f := d.report(true).Findings[0]; f.Closed != "recovered" {
		t.Fatalf("%+v", f)
	}
}
