package db_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

// liveOnce lives one life of the main run: a step, an operation, an event, a checkpoint, and its end.
func liveOnce(t *testing.T, s *db.Store, c *clock, n int) {
	t.Helper()
	run, _, err := s.StartRun(t.Context(), as(11), ckpt.RunRequest{Agent: "a", PID: 11, Goal: ckpt.Ref(fmt.Sprintf("goal %d", n))})
	must(t, err)
	save(t, s, as(11), "a", ckpt.KindRoutine, fmt.Sprintf(`{"life":%d}`, n))
	_, _, err = s.BeginStep(t.Context(), as(11), mainRun, ckpt.StepRequest{Key: "look", Name: "look"})
	must(t, err)
	_, _, err = s.FinishStep(t.Context(), as(11), mainRun, ckpt.StepRequest{Key: "look", Status: ckpt.StepSucceeded, Result: ckpt.JSON(fmt.Sprint(n))})
	must(t, err)
	_, _, err = s.BeginOperation(t.Context(), as(11), mainRun, ckpt.OperationRequest{Key: "pay", Name: "pay"})
	must(t, err)
	_, _, err = s.EndOperation(t.Context(), as(11), mainRun, ckpt.OperationEnd{Key: "pay", Status: ckpt.OperationSucceeded, Result: ckpt.JSON(fmt.Sprint(n))})
	must(t, err)
	_, _, err = s.Append(t.Context(), as(11), mainRun, []ckpt.NewEvent{{Type: "said", Payload: ckpt.JSON(fmt.Sprintf(`{"life":%d}`, n))}}, "")
	must(t, err)
	_, _, err = s.EndRun(t.Context(), as(11), at(run.Epoch), ckpt.EndRequest{Status: ckpt.RunCompleted, Result: ckpt.JSON(fmt.Sprintf(`"done %d"`, n))})
	must(t, err)
	c.add(time.Minute)
}

func lifeNames(t *testing.T, s *db.Store, lives bool) (names []string) {
	t.Helper()
	page, err := s.Runs(t.Context(), ann, ckpt.RunFilter{Agent: "a", Lives: lives, Sort: ckpt.SortStarted})
	must(t, err)
	for _, r := range page.Runs {
		names = append(names, r.Run+" "+string(r.Goal))
	}
	return names
}

// TestLivesOfARun: each life that has ended stays, with all that it had, under a name of its own.
func TestLivesOfARun(t *testing.T) {
	t.Parallel()
	s, c, _ := openRuns(t)
	for n := 1; n <= 5; n++ {
		liveOnce(t, s, c, n)
	}
	if got := fmt.Sprint(lifeNames(t, s, false)); got != "[main goal 5]" {
		t.Errorf("the present lives are %s", got)
	}
	if got := fmt.Sprint(lifeNames(t, s, true)); got != "[main goal 5 main~1 goal 4 main~2 goal 3 main~3 goal 2 main~4 goal 1]" {
		t.Errorf("all lives are %s", got)
	}
	third := ckpt.RunRef{Agent: "a", Run: "main~2"}
	run, err := s.Run(t.Context(), ann, third)
	must(t, err)
	if run.Status != ckpt.RunCompleted || string(run.Result) != `"done 3"` || run.Goal != "goal 3" {
		t.Errorf("main~2 is %+v", run)
	}
	steps, err := s.Steps(t.Context(), ann, third, ckpt.ListFilter{})
	must(t, err)
	operations, err := s.Operations(t.Context(), ann, third, ckpt.ListFilter{})
	must(t, err)
	events, err := s.Events(t.Context(), ann, third, 0, 0)
	must(t, err)
	if len(steps.Steps) != 1 || len(operations.Operations) != 1 || len(events.Events) != 1 || string(steps.Steps[0].Result) != "3" ||
		string(operations.Operations[0].Result) != "3" || string(events.Events[0].Payload) != `{"life":3}` {
		t.Errorf("main~2 had %+v %+v %+v", steps.Steps, operations.Operations, events.Events)
	}
	last, err := s.Latest(t.Context(), ann, ckpt.CheckpointFilter{Agent: "a", Run: "main~2"}, true)
	must(t, err)
	if string(last.State) != `{"life":3}` || last.Run != "main~2" {
		t.Errorf("the last checkpoint of main~2 is %s %s", last.Run, last.State)
	}
	if all, err := s.Events(t.Context(), ann, mainRun, 2, 0); err != nil || len(all.Events) != 3 || all.Events[0].Seq != 3 || all.Events[2].Seq != 5 {
		t.Errorf("after event 2: %+v %v", all, err)
	}
	if now, err := s.Events(t.Context(), ann, mainRun, 0, 0); err != nil || len(now.Events) != 1 || now.Events[0].Seq != 5 {
		t.Errorf("of the present life: %+v %v", now, err)
	}
	sound(t, pathOf(s))
	got := sqlite3(t, pathOf(s), `SELECT life, ago, goal, checkpoints FROM audit_runs WHERE run = 'main' ORDER BY life;
		SELECT life, count(*) FROM audit_log WHERE action = 'end_run' AND run = 'main' GROUP BY life;
		SELECT o.result FROM audit_operations o JOIN audit_runs r USING (run, life) WHERE r.ago = 2;
		SELECT count(*) FROM audit_violations`)
	want := "1|4|goal 1|2\n2|3|goal 2|2\n3|2|goal 3|2\n4|1|goal 4|2\n5|0|goal 5|2\n1|1\n2|1\n3|1\n4|1\n5|1\n3\n0"
	if got != want {
		t.Errorf("an auditor reads\n%s\nwant\n%s", got, want)
	}
}

// TestAPastLifeStays: nothing can be written to an earlier life, and nobody resumes it.
func TestAPastLifeStays(t *testing.T) {
	t.Parallel()
	s, c, _ := openRuns(t)
	liveOnce(t, s, c, 1)
	liveOnce(t, s, c, 2)
	past := ckpt.RunRef{Agent: "a", Run: "main~1"}
	_, _, err := s.BeginStep(t.Context(), as(11), past, ckpt.StepRequest{Key: "k", Name: "k"})
	wantCode(t, err, ckpt.CodeConflict)
	if !strings.Contains(err.Error(), "write to main") {
		t.Errorf("the error does not say where to write: %v", err)
	}
	_, _, err = s.BeginStep(t.Context(), as(11), ckpt.RunRef{Agent: "a", Run: "main~7"}, ckpt.StepRequest{Key: "k", Name: "k"})
	wantCode(t, err, ckpt.CodeNotFound)
	_, _, err = s.EndRun(t.Context(), as(11), past, ckpt.EndRequest{Status: ckpt.RunFailed})
	wantCode(t, err, ckpt.CodeConflict)
	for _, name := range []string{"main~1", "main~0", "main~", "main~01", "main~1~1", "~1"} {
		_, _, err = s.StartRun(t.Context(), as(11), ckpt.RunRequest{Agent: "a", Run: name})
		wantCode(t, err, ckpt.CodeInvalid)
		_, _, err = s.Resume(t.Context(), as(11), ckpt.ResumeRequest{Agent: "a", Run: name})
		wantCode(t, err, ckpt.CodeInvalid)
		r := request("a", ckpt.KindRoutine, `{}`)
		r.Run = name
		_, err = s.Save(t.Context(), as(11), r)
		wantCode(t, err, ckpt.CodeInvalid)
	}
	before, err := s.Run(t.Context(), ann, past)
	must(t, err)
	if c, _, err := s.Restore(t.Context(), as(11), ckpt.RestoreRequest{Agent: "a", Run: "main~1"}); err != nil || string(c.State) != `{"life":1}` {
		t.Errorf("the state of main~1 is %+v %v", c, err)
	}
	if after, err := s.Run(t.Context(), ann, past); err != nil || after.UpdatedAt != before.UpdatedAt {
		t.Errorf("a restore changed main~1: %+v %v", after, err)
	}
	sound(t, pathOf(s))
}

// TestReinitializedLifeStays: what a person leaves behind stays as history, whatever is saved afterwards.
func TestReinitializedLifeStays(t *testing.T) {
	t.Parallel()
	s, c, p := openRuns(t)
	_, err := s.SetOwnPolicy(t.Context(), ann, "a", []byte(`{"autoresume":false}`))
	must(t, err)
	start(t, s, 11)
	for i := range 3 {
		save(t, s, as(11), "a", ckpt.KindRoutine, fmt.Sprintf(`{"old":%d}`, i))
	}
	p.kill(11)
	c.add(time.Minute)
	plan := claim(t, s, 12)
	wantVerdict(t, plan, ckpt.VerdictAsk)
	_, _, err = s.AnswerPrompt(t.Context(), ann, ckpt.PromptAnswer{ID: plan.Prompt.ID, Choice: ckpt.ChoiceReinitialize})
	must(t, err)
	c.add(time.Second)
	plan = claim(t, s, 12)
	wantVerdict(t, plan, ckpt.VerdictFresh)
	if said := strings.Join(plan.Reasons, " "); !strings.Contains(said, "re-initialized") || !strings.Contains(said, "answered reinitialize") {
		t.Errorf("the plan says %s", said)
	}
	for i := range 5 {
		save(t, s, as(12), "a", ckpt.KindRoutine, fmt.Sprintf(`{"new":%d}`, i))
	}
	run, err := s.Run(t.Context(), ann, ckpt.RunRef{Agent: "a", Run: "main~1"})
	must(t, err)
	if run.Status != ckpt.RunFailed || run.EndedAt.IsZero() || !strings.Contains(string(run.Error), "begun anew") {
		t.Errorf("the life that was left behind is %+v", run)
	}
	last, err := s.Latest(t.Context(), ann, ckpt.CheckpointFilter{Agent: "a", Run: "main~1"}, true)
	must(t, err)
	if string(last.State) != `{"old":2}` {
		t.Errorf("its last state is %s", last.State)
	}
	got := sqlite3(t, pathOf(s), `SELECT life, json_extract(detail, '$.life') FROM audit_log WHERE action = 'answer_prompt'`)
	if got != "1|2" {
		t.Errorf("the answer is recorded as of life %s", got)
	}
	sound(t, pathOf(s))
}

// TestLivesGo: the oldest go when there are more than lives_keep, and all when ended_keep is over. One in which
// something may have happened stays until a person has said whether it did.
func TestLivesGo(t *testing.T) {
	t.Parallel()
	s, c, _ := openRuns(t)
	_, err := s.SetOwnPolicy(t.Context(), ann, "a", []byte(`{"lives_keep":2}`))
	must(t, err)
	start(t, s, 11)
	wire := ckpt.OperationRequest{Key: "wire", Name: "wire"}
	_, _, err = s.BeginOperation(t.Context(), as(11), mainRun, wire)
	must(t, err)
	_, _, err = s.EndRun(t.Context(), as(11), mainRun, ckpt.EndRequest{Status: ckpt.RunCompleted, LeaveUncertain: true, Reason: "the bank is closed"})
	must(t, err)
	for n := 2; n <= 6; n++ {
		liveOnce(t, s, c, n)
	}
	round(t, s, c)
	if got := fmt.Sprint(lifeNames(t, s, true)); got != "[main goal 6 main~1 goal 5 main~2 goal 4 main~5 ]" {
		t.Errorf("with lives_keep 2 there are %s", got)
	}
	start(t, s, 11)
	_, _, err = s.BeginOperation(t.Context(), as(11), mainRun, wire)
	wantCode(t, err, ckpt.CodeUncertainOperation)
	if !strings.Contains(err.Error(), "main~6") {
		t.Errorf("the error does not say which life must be looked at: %v", err)
	}
	_, _, err = s.EndRun(t.Context(), as(11), mainRun, ckpt.EndRequest{Status: ckpt.RunCompleted})
	must(t, err)
	_, _, err = s.ResolveOperation(t.Context(), ann, ckpt.RunRef{Agent: "a", Run: "main~6"},
		ckpt.OperationResolution{Key: "wire", Choice: ckpt.ChoiceItDidNot, Reason: "the bank has no such payment"})
	must(t, err)
	round(t, s, c)
	if got := fmt.Sprint(lifeNames(t, s, true)); got != "[main goal 6 main~1 goal 6 main~2 goal 5]" {
		t.Errorf("after the operation was resolved there are %s", got)
	}
	c.add(31 * 24 * time.Hour)
	liveOnce(t, s, c, 8)
	round(t, s, c)
	if got := fmt.Sprint(lifeNames(t, s, true)); got != "[main goal 8]" {
		t.Errorf("after 31 days there are %s", got)
	}
	got := sqlite3(t, pathOf(s), `SELECT DISTINCT life FROM audit_log WHERE action = 'drop_run' ORDER BY life; SELECT life FROM audit_runs`)
	if got != "1\n2\n3\n4\n5\n6\n7\n8" {
		t.Errorf("an auditor reads that these lives went: %s", got)
	}
	_, err = s.DeleteRun(t.Context(), ann, mainRun, false)
	must(t, err)
	start(t, s, 11)
	if got := sqlite3(t, pathOf(s), `SELECT life FROM audit_runs`); got != "9" {
		t.Errorf("after all lives are gone, the next one is %s", got)
	}
	sound(t, pathOf(s))
}

// TestDeleteALife: the other lives keep their names.
func TestDeleteALife(t *testing.T) {
	t.Parallel()
	s, c, _ := openRuns(t)
	for n := 1; n <= 3; n++ {
		liveOnce(t, s, c, n)
	}
	_, err := s.DeleteRun(t.Context(), ann, ckpt.RunRef{Agent: "a", Run: "main~1"}, false)
	must(t, err)
	if got := fmt.Sprint(lifeNames(t, s, true)); got != "[main goal 3 main~2 goal 1]" {
		t.Errorf("left are %s", got)
	}
	if got := sqlite3(t, pathOf(s), `SELECT run, life FROM audit_log WHERE action = 'delete_run'`); got != "main|2" {
		t.Errorf("deleted is %s", got)
	}
	liveOnce(t, s, c, 4)
	if got := fmt.Sprint(lifeNames(t, s, true)); got != "[main goal 4 main~1 goal 3 main~3 goal 1]" {
		t.Errorf("then there are %s", got)
	}
}

// TestExportLives: an export has all lives of a run, and an import brings those back that are not here.
func TestExportLives(t *testing.T) {
	t.Parallel()
	s, c, _ := openRuns(t)
	liveOnce(t, s, c, 1)
	liveOnce(t, s, c, 2)
	export := func() []byte {
		var out bytes.Buffer
		must(t, s.ExportAgents(t.Context(), ann, ckpt.ExportRequest{Agents: []string{"a"}}, &out))
		return out.Bytes()
	}
	two := export()
	liveOnce(t, s, c, 3)
	three := export()
	report, err := s.Import(t.Context(), ann, ckpt.ImportRequest{}, bytes.NewReader(two)) // main of then is main~1 now
	must(t, err)
	if report.RunsPresent != 2 || report.Runs != 0 {
		t.Errorf("an older export brought %+v", report)
	}
	other, _, _ := openRuns(t)
	_, err = other.Import(t.Context(), ann, ckpt.ImportRequest{}, bytes.NewReader(two))
	must(t, err)
	if got := fmt.Sprint(lifeNames(t, other, true)); got != "[main goal 2 main~1 goal 1]" {
		t.Errorf("imported are %s", got)
	}
	_, err = other.Import(t.Context(), ann, ckpt.ImportRequest{}, bytes.NewReader(three))
	wantCode(t, err, ckpt.CodeConflict)
	_, err = s.DeleteRun(t.Context(), ann, ckpt.RunRef{Agent: "a", Run: "main~2"}, false)
	must(t, err)
	report, err = s.Import(t.Context(), ann, ckpt.ImportRequest{}, bytes.NewReader(three))
	must(t, err)
	if got := fmt.Sprint(lifeNames(t, s, true)); report.Runs != 1 || got != "[main goal 3 main~1 goal 2 main~2 goal 1]" {
		t.Errorf("a deleted life was brought back: %+v, and there are %s", report, got)
	}
	for _, of := range []*db.Store{s, other} {
		sound(t, pathOf(of))
	}
}

// round is one round of retention.
func round(t *testing.T, s *db.Store, c *clock) {
	t.Helper()
	ids, err := s.Due(t.Context(), c.Now(), 0, 1000)
	must(t, err)
	_, err = s.Apply(t.Context(), ids, retention.Plan, c.Now(), 1000, false)
	must(t, err)
	_, _, err = s.Drop(t.Context(), ids, retention.Over, c.Now())
	must(t, err)
}

// TestALifeStandsAlone: a state of a run that was begun anew uses nothing of the life before, which can be removed alone.
func TestALifeStandsAlone(t *testing.T) {
	t.Parallel()
	s, _, _ := openRuns(t)
	run := start(t, s, 11)
	save(t, s, as(11), "a", ckpt.KindRoutine, conversation(200))
	_, _, err := s.EndRun(t.Context(), as(11), at(run.Epoch), ckpt.EndRequest{Status: ckpt.RunCompleted})
	must(t, err)
	start(t, s, 11)
	saved := save(t, s, as(11), "a", ckpt.KindRoutine, conversation(201))
	if violations := sqlite3(t, "-readonly", pathOf(s), `SELECT * FROM audit_violations`); violations != "" {
		t.Error(violations)
	}
	_, err = s.DeleteRun(t.Context(), ann, ckpt.RunRef{Agent: "a", Run: "main~1"}, false)
	must(t, err)
	c, err := s.Checkpoint(t.Context(), ann, saved.ID, true)
	must(t, err)
	if string(c.State) != conversation(201) {
		t.Error("the state reads back otherwise")
	}
	sound(t, pathOf(s))
}
