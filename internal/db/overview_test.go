package db_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/liveness"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// overview reads the overview and fails the test on an error.
func overview(t testing.TB, s *db.Store, sc ckpt.Scope) *survey.Overview {
	t.Helper()
	v, same, err := s.Overview(t.Context(), sc, survey.OverviewQuery{})
	must(t, err)
	if same {
		t.Fatal("an overview that was asked for anew is the same as none")
	}
	return v
}

// startRun registers a run of an agent for a process.
func startRun(t testing.TB, s *db.Store, agent, run string, pid int) *ckpt.Run {
	t.Helper()
	r, _, err := s.StartRun(t.Context(), as(pid), ckpt.RunRequest{Agent: agent, Run: run, PID: pid, Goal: "fix it"})
	must(t, err)
	return r
}

// dies lets the monitor find the owner of a run dead.
func dies(t testing.TB, s *db.Store, agent, run string) {
	t.Helper()
	watched, err := s.Watched(t.Context(), 0, 1000)
	must(t, err)
	i := slices.IndexFunc(watched, func(w liveness.Run) bool { return w.Agent == agent && w.Run == run })
	if i < 0 {
		t.Fatalf("%s/%s is not watched", agent, run)
	}
	did, err := s.Interrupt(t.Context(), watched[i], ckpt.RunInterrupted, "its process ended")
	must(t, err)
	if !did {
		t.Fatal("the run was not interrupted")
	}
}

func critical(t testing.TB, s *db.Store, agent, run, message string) {
	t.Helper()
	_, _, err := s.PostFinding(t.Context(), ann, agent, ckpt.FindingRequest{Run: run, Rule: "own", Severity: ckpt.SeverityCritical, Message: message})
	must(t, err)
}

// needOf returns the one need of a kind, nil if there is none.
func needOf(t testing.TB, s *db.Store, what string) *survey.Need {
	t.Helper()
	list := slices.DeleteFunc(overview(t, s, ann).Needs, func(n survey.Need) bool { return n.What != what })
	if len(list) > 1 {
		t.Fatalf("%d needs are a %s", len(list), what)
	}
	for i := range list {
		return &list[i]
	}
	return nil
}

// TestAnAnsweredRunIsShownUntilSomebodyRunsIt: after each answer, a run that nobody runs stays with what needs a person, with
// the command that starts its agent. Whether its owner had ended it or was found dead makes no difference.
func TestAnAnsweredRunIsShownUntilSomebodyRunsIt(t *testing.T) {
	t.Parallel()
	command := &ckpt.Command{Argv: []string{"python3", "agent.py"}, Folder: "/srv"}
	for _, how := range []string{"found dead", "ended by its owner"} {
		for _, choice := range []ckpt.PromptChoice{ckpt.ChoiceItDid, ckpt.ChoiceItDidNot, ckpt.ChoiceRepeat, ckpt.ChoiceResume, ckpt.ChoiceReinitialize} {
			about := choice != ckpt.ChoiceResume && choice != ckpt.ChoiceReinitialize
			if !about && how == "ended by its owner" {
				continue // nobody is asked
			}
			t.Run(how+", "+string(choice), func(t *testing.T) {
				t.Parallel()
				s, c, _ := openRuns(t)
				run := start(t, s, 1)
				if about {
					_, _, err := s.BeginOperation(t.Context(), as(1), at(run.Epoch), ckpt.OperationRequest{Key: "pay", Name: "pay", State: ckpt.JSON(`1`)})
					must(t, err)
				} else {
					_, err := s.SetOwnPolicy(t.Context(), ann, "a", []byte(`{"autoresume":false}`))
					must(t, err)
					save(t, s, as(1), "a", ckpt.KindRoutine, `1`)
				}
				c.add(time.Minute)
				if how == "found dead" {
					dies(t, s, "a", "main")
				} else {
					_, _, err := s.EndRun(t.Context(), as(1), at(run.Epoch), ckpt.EndRequest{Status: ckpt.RunInterrupted})
					must(t, err)
				}
				plan := claim(t, s, 2, func(r *ckpt.ResumeRequest) { r.Command = command })
				if plan.Verdict != ckpt.VerdictAsk {
					t.Fatalf("the verdict is %s", plan.Verdict)
				}
				if n := needOf(t, s, survey.NeedLostRun); n != nil {
					t.Errorf("a run that waits for an answer is shown as lost, too: %+v", n)
				}
				c.add(time.Minute)
				_, _, err := s.AnswerPrompt(t.Context(), ann, ckpt.PromptAnswer{ID: plan.Prompt.ID, Choice: choice})
				must(t, err)
				n := needOf(t, s, survey.NeedLostRun)
				if n == nil {
					t.Fatal("the run that nobody runs is shown nowhere")
				}
				if !n.MayGoOn || !strings.Contains(n.Why, "may go on; nobody runs it") || n.Agent != "a" || n.Run != "main" || n.Since.IsZero() {
					t.Errorf("the need is %+v", n)
				}
				if n.Command == nil || !slices.Equal(n.Command.Argv, command.Argv) {
					t.Errorf("the command that starts the agent is %+v", n.Command)
				}
				_, err = s.SetOwnPolicy(t.Context(), ann, "a", []byte(`{"autoresume":true}`))
				must(t, err)
				claim(t, s, 3)
				if n := needOf(t, s, survey.NeedLostRun); n != nil {
					t.Errorf("somebody runs it, and it still waits: %+v", n)
				}
				c.add(time.Minute)
				dies(t, s, "a", "main")
				if n := needOf(t, s, survey.NeedLostRun); n == nil || n.MayGoOn {
					t.Errorf("the answer was for an earlier owner, and the need is %+v", n)
				}
			})
		}
	}
}

// TestTheOverviewShowsWhoWaitsForAnAnswer: the exec that goes on with a run stands with the question and with the run, and
// no longer when it has ended.
func TestTheOverviewShowsWhoWaitsForAnAnswer(t *testing.T) {
	t.Parallel()
	s, c, p := openRuns(t)
	run := start(t, s, 1)
	_, _, err := s.BeginOperation(t.Context(), as(1), at(run.Epoch), ckpt.OperationRequest{Key: "pay", Name: "pay", State: ckpt.JSON(`1`)})
	must(t, err)
	c.add(time.Minute)
	dies(t, s, "a", "main")
	claim(t, s, 77, func(r *ckpt.ResumeRequest) { r.Waits = 77 })
	v := overview(t, s, ann)
	if len(v.Needs) != 1 || v.Needs[0].WaitingPID != 77 || len(v.Runs) != 1 || v.Runs[0].WaitingPID != 77 {
		t.Errorf("exec 77 waits, and the overview has %+v and %+v", v.Needs, v.Runs)
	}
	if _, same, err := s.Overview(t.Context(), ann, survey.OverviewQuery{ETag: v.ETag}); err != nil || !same {
		t.Errorf("nothing has changed, and the answer is %v, %v", same, err)
	}
	p.kill(77)
	v, same, err := s.Overview(t.Context(), ann, survey.OverviewQuery{ETag: v.ETag})
	must(t, err)
	if same || v.Needs[0].WaitingPID != 0 || v.Runs[0].WaitingPID != 0 {
		t.Errorf("exec 77 is gone, and the overview says the same (%v): %+v", same, v)
	}
}

// whats returns the needs as "what agent/run".
func whats(list []survey.Need) (words []string) {
	for _, n := range list {
		words = append(words, strings.TrimSuffix(n.What+" "+n.Agent+"/"+n.Run, " /"))
	}
	return words
}

// TestNeedsHaveARowForEachCause: an uncertain operation also covers the
// decision about its run and the loss of the run. More than three runs share a
// row.
func TestNeedsHaveARowForEachCause(t *testing.T) {
	t.Parallel()
	s, c, _ := openRuns(t)
	_, err := s.SetOwnPolicy(t.Context(), ann, "asks", []byte(`{"autoresume":false}`))
	must(t, err)
	startRun(t, s, "asks", "r", 1)
	_, _, err = s.BeginOperation(t.Context(), as(1), ckpt.RunRef{Agent: "asks", Run: "r"}, ckpt.OperationRequest{Key: "push", Name: "push branch", State: ckpt.JSON(`1`)})
	must(t, err)
	c.add(time.Minute)
	dies(t, s, "asks", "r") // this run also has a prompt
	died := ckpt.At(c.Now())
	startRun(t, s, "asks", "second", 2)
	c.add(time.Minute)
	dies(t, s, "asks", "second") // this is only a decision
	for i := range 5 {
		startRun(t, s, "lost", fmt.Sprint("r", i), 3)
		c.add(time.Minute)
		dies(t, s, "lost", fmt.Sprint("r", i))
		critical(t, s, "bad", fmt.Sprint("r", i), "it goes in circles")
		c.add(time.Second)
		critical(t, s, "bad", fmt.Sprint("r", i), "it still does")
	}
	v := overview(t, s, ann)
	want := []string{
		"operation asks/r", "prompt asks/second",
		"finding bad/r4", "finding bad/r3", "finding bad/r2", "findings",
		"lost_run lost/r4", "lost_run lost/r3", "lost_run lost/r2", "lost_runs",
	}
	if got := whats(v.Needs); !slices.Equal(got, want) {
		t.Fatalf("needs %q, want %q", got, want)
	}
	first := v.Needs[0]
	if first.Operation != "push" || first.Text != "push branch" || first.Attempt != 1 || first.Prompt == "" || first.Checkpoint == "" || !first.Since.Equal(died.Time) || first.Epoch == 0 {
		t.Errorf("the operation's row is %+v", first)
	}
	if n := v.Needs[2]; n.Count != 2 || n.Text != "it still does" || n.Rule != "own" || n.Severity != ckpt.SeverityCritical || n.Finding == "" {
		t.Errorf("a finding's row is %+v", n)
	}
	if n := v.Needs[5]; n.Count != 2 || n.Run != "" || n.Since.IsZero() {
		t.Errorf("the row of more findings is %+v", n)
	}
	if got := v.Counts.Needs; got["operation"] != 1 || got["prompt"] != 1 || got["finding"] != 5 || got["lost_run"] != 5 {
		t.Errorf("counts %v", got)
	}
	keys := map[string]bool{}
	for _, n := range v.Needs {
		if keys[n.Key] {
			t.Errorf("two needs have the key %s", n.Key)
		}
		keys[n.Key] = true
	}

	// A need disappears when it is resolved. The decision about the run is asked then.
	_, _, err = s.ResolveOperation(t.Context(), ann, ckpt.RunRef{Agent: "asks", Run: "r"}, ckpt.OperationResolution{Key: "push", Choice: ckpt.ChoiceItDidNot, Reason: "looked"})
	must(t, err)
	if got := whats(overview(t, s, ann).Needs); slices.Contains(got, "operation asks/r") || !slices.Contains(got, "prompt asks/r") {
		t.Errorf("after the operation was resolved: %q", got)
	}

	// Nobody sees another owner's needs. An administrator sees all, and that is
	// recorded in the audit log.
	if v := overview(t, s, bob); len(v.Needs) != 0 || len(v.Runs) != 0 || v.Counts.Runs != 0 {
		t.Errorf("bob is told %+v", v)
	}
	if v := overview(t, s, root); len(v.Needs) != len(want) || len(v.Runs) == 0 || v.Runs[0].Owner != "uid:1001" {
		t.Errorf("an administrator is told of %d needs and %d runs", len(v.Needs), len(v.Runs))
	}
	if got := sqlite3(t, pathOf(s), `SELECT count(*) FROM audit_log WHERE action = 'admin_read_overview' AND owner = '*'`); got != "1" {
		t.Errorf("%s rows say that an administrator looked", got)
	}
}

// TestOverviewHasRunsInBins: each event of a run is in the bin of its time.
func TestOverviewHasRunsInBins(t *testing.T) {
	t.Parallel()
	s, c, _ := openRuns(t)
	ref := ckpt.RunRef{Agent: "a", Run: "r"}
	step := func(key string, status ckpt.StepStatus) {
		t.Helper()
		cost, in := 0.25, int64(100)
		_, _, err := s.BeginStep(t.Context(), as(1), ref, ckpt.StepRequest{Key: key, Name: "bash", Status: status, CostUSD: &cost, InputTokens: &in})
		must(t, err)
	}
	startRun(t, s, "a", "r", 1)
	step("old", ckpt.StepSucceeded)
	c.add(3 * time.Hour)
	step("1", ckpt.StepSucceeded)
	step("2", ckpt.StepFailed)
	c.add(30 * time.Minute)
	step("3", ckpt.StepSucceeded)
	_, err := s.Save(t.Context(), as(1), &ckpt.SaveRequest{Agent: "a", Run: "r", Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: []byte(`{}`)})
	must(t, err)
	saved := ckpt.At(c.Now())
	startRun(t, s, "a", "gone", 2)
	_, _, err = s.EndRun(t.Context(), as(2), ckpt.RunRef{Agent: "a", Run: "gone"}, ckpt.EndRequest{Status: ckpt.RunCompleted})
	must(t, err)
	v := overview(t, s, ann)
	if v.BinMS != 60_000 || v.To.Sub(v.From.Time) != 2*time.Hour || v.To.Before(c.Now()) || v.To.Sub(c.Now()) > time.Minute {
		t.Errorf("the axis goes from %s to %s by %d ms", v.From, v.To, v.BinMS)
	}
	i := slices.IndexFunc(v.Runs, func(r survey.RunLine) bool { return r.Run == "r" })
	if len(v.Runs) != 2 || i < 0 {
		t.Fatalf("runs %+v", v.Runs)
	}
	r := v.Runs[i]
	if len(r.Bins) != 2 || r.Bins[0].Steps != 2 || r.Bins[0].Failed != 1 || r.Bins[1].Steps != 1 || r.Bins[1].I-r.Bins[0].I != 30 {
		t.Errorf("bins %+v", r.Bins)
	}
	if r.Steps != 4 || r.CostUSD != 1 || r.InputTokens != 400 || r.SavedSeq != 1 || !r.SavedAt.Equal(saved.Time) || r.Goal != "fix it" || r.Status != ckpt.RunRunning {
		t.Errorf("the run is %+v", r)
	}
	c.add(3 * time.Hour)
	if v := overview(t, s, ann); len(v.Runs) != 1 {
		t.Errorf("three hours after the end of one there are %d runs", len(v.Runs))
	}
}

// TestOverviewIsTheSameUntilSomethingChanges: the tag identifies the content.
func TestOverviewIsTheSameUntilSomethingChanges(t *testing.T) {
	t.Parallel()
	s, c, _ := openRuns(t)
	startRun(t, s, "a", "r", 1)
	v := overview(t, s, ann)
	again := func(sc ckpt.Scope) bool {
		t.Helper()
		v, same, err := s.Overview(t.Context(), sc, survey.OverviewQuery{ETag: v.ETag})
		must(t, err)
		if same != (v == nil) {
			t.Errorf("the same: %v, and an answer: %v", same, v != nil)
		}
		return same
	}
	if !again(ann) {
		t.Error("nothing has changed, and the overview is not the same")
	}
	save(t, s, bob, "b", ckpt.KindRoutine, `1`)
	if !again(ann) {
		t.Error("what another does changes ann's overview")
	}
	if again(bob) {
		t.Error("bob has ann's overview")
	}
	c.add(time.Second)
	if !again(ann) {
		t.Error("a second alone changes the overview")
	}
	critical(t, s, "a", "r", "it goes in circles")
	if again(ann) {
		t.Error("a finding does not change the overview")
	}
}

// TestOverviewOfMuchIsQuick: an overview of 1,000 runs, 100,000 checkpoints and
// 100,000 steps lists only some of the runs. The test logs how long it takes.
func TestOverviewOfMuchIsQuick(t *testing.T) {
	if testing.Short() {
		t.Skip("it fills a large database")
	}
	s, _ := fullOfRuns(t)
	var times []time.Duration
	for i := range 9 {
		critical(t, s, "agent-0", "run-0", fmt.Sprint("new ", i)) // this makes the cached overview invalid
		began := time.Now()
		v, _, err := s.Overview(t.Context(), root, survey.OverviewQuery{})
		must(t, err)
		times = append(times, time.Since(began))
		if len(v.Runs) != survey.DefaultRuns || v.MoreRuns != 800 || v.Counts.Runs != 1000 {
			t.Fatalf("%d runs, %d more, of %d", len(v.Runs), v.MoreRuns, v.Counts.Runs)
		}
		if i == 0 {
			text, err := json.Marshal(v)
			must(t, err)
			t.Logf("the answer has %d bytes", len(text))
		}
	}
	slices.Sort(times)
	t.Logf("an overview of 1,000 runs takes %v in the middle, %v at most", times[len(times)/2], times[len(times)-1])
}

// fullOfRuns is a database with 1,000 runs of 10 agents of two owners, each
// with 100 checkpoints and 100 steps of the last two hours. Half of the runs
// have ended, and one in ten was lost.
func fullOfRuns(t testing.TB) (*db.Store, *clock) {
	t.Helper()
	s, c, _ := openRuns(t)
	path := pathOf(s)
	now := ckpt.At(c.Now())
	must(t, s.Close())
	sqlite3(t, path, fmt.Sprintf(`BEGIN;
		CREATE TEMP TABLE n (i INTEGER PRIMARY KEY); INSERT INTO n WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 99999) SELECT i FROM n;
		INSERT INTO agents (id, owner, name, created_at, policy_at) SELECT i + 1, 'uid:' || (1001 + i %% 2), 'agent-' || i, '%[1]s', '%[1]s' FROM n WHERE i < 10;
		INSERT INTO runs (id, agent_id, name, status, started_at, updated_at, ended_at, segment_at, interrupted_at, last_seq, goal, steps_ended)
			SELECT i + 1, 1 + i / 100, 'run-' || i, CASE WHEN i %% 2 THEN 'completed' WHEN i %% 10 = 0 THEN 'interrupted' ELSE 'running' END, '%[2]s',
			'%[1]s', CASE WHEN i %% 2 THEN '%[1]s' END, CASE WHEN i %% 2 = 0 AND i %% 10 THEN '%[2]s' END, CASE WHEN i %% 10 = 0 THEN '%[1]s' END, 100, 'fix it', 100 FROM n WHERE i < 1000;
		INSERT INTO checkpoints (slot, n, id, run_id, seq, kind, created_at, size, stored_size, sha256, content_type, body)
			SELECT ((1 + i / 100) << 32) + 1 + i %% 100, i + 1, printf('019cad25-8e6c-7a5f-9d0e-%%012d', i), 1 + i / 100, 1 + i %% 100, 'routine',
			strftime('%%Y-%%m-%%dT%%H:%%M:%%fZ', '%[2]s', '+' || (i %% 100 * 72) || ' seconds'), 1, 1, lower(hex(zeroblob(32))), 'application/json', x'31' FROM n;
		INSERT INTO steps (run_id, key, name, status, args, result, started_at, ended_at)
			SELECT 1 + i / 100, i %% 100, 'bash', CASE WHEN i %% 20 THEN 'succeeded' ELSE 'failed' END, '{"command":"make"}', '"done"',
			strftime('%%Y-%%m-%%dT%%H:%%M:%%fZ', '%[2]s', '+' || (i %% 100 * 72) || ' seconds'),
			strftime('%%Y-%%m-%%dT%%H:%%M:%%fZ', '%[2]s', '+' || (i %% 100 * 72 + 1) || ' seconds') FROM n; COMMIT;`, now, ckpt.At(now.Add(-2*time.Hour))))
	o := options(path, c)
	return openWith(t, o), c
}
