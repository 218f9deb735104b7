package db_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
)

func TestRunLife(t *testing.T) {
	t.Parallel()
	s, c, _ := openRuns(t)
	run := start(t, s, 11)
	if run.Status != ckpt.RunStarting || run.Epoch != 1 || run.PID != 11 {
		t.Fatalf("registered as %+v", run)
	}
	save(t, s, as(11), "a", ckpt.KindRoutine, `{"i":1}`)
	c.add(time.Minute)
	half := 0.5
	run, err := s.Beat(t.Context(), as(11), mainRun, ckpt.Heartbeat{Epoch: &run.Epoch, Progress: &half})
	if err != nil {
		t.Fatal(err)
	}
	if run.Status != ckpt.RunRunning || *run.Progress != 0.5 || run.AccumulatedMS != 60_000 {
		t.Fatalf("after a beat: %+v", run)
	}
	run, _, err = s.EndRun(t.Context(), as(11), mainRun, ckpt.EndRequest{Status: ckpt.RunCompleted, Result: ckpt.JSON(`{"ok":true}`), State: ckpt.JSON(`{"i":2}`)})
	if err != nil {
		t.Fatal(err)
	}
	if run.Status != ckpt.RunCompleted || run.EndedAt.IsZero() || string(run.Result) != `{"ok":true}` {
		t.Fatalf("ended as %+v", run)
	}
	if got := seqs(t, s, ann, "a"); len(got) != 2 {
		t.Errorf("the final state was not saved: %v", got)
	}
	_, err = s.Save(t.Context(), as(11), request("a", ckpt.KindRoutine, `3`))
	wantCode(t, err, ckpt.CodeConflict)
	sound(t, pathOf(s))
}

func TestStartAgain(t *testing.T) {
	t.Parallel()
	s, _, p := openRuns(t)
	start(t, s, 11)
	start(t, s, 11) // the same process may register again
	_, _, err := s.StartRun(t.Context(), as(12), ckpt.RunRequest{Agent: "a", PID: 12})
	wantCode(t, err, ckpt.CodeConflict) // the owner is alive
	p.kill(11)
	_, _, err = s.StartRun(t.Context(), as(12), ckpt.RunRequest{Agent: "a", PID: 12})
	wantCode(t, err, ckpt.CodeConflict) // the run is unfinished, so it must be resumed
	if !strings.Contains(err.Error(), "resume") {
		t.Errorf("the error does not say what to do: %v", err)
	}
	plan := claim(t, s, 12)
	if _, _, err := s.EndRun(t.Context(), as(12), at(plan.Epoch), ckpt.EndRequest{Status: ckpt.RunCompleted}); err != nil {
		t.Fatal(err)
	}
	if run := start(t, s, 13); run.Epoch != plan.Epoch+1 || run.Status != ckpt.RunStarting {
		t.Errorf("a run that ended begins anew as %+v", run)
	}
}

// TestStartAgainWithoutAProcess: if the owner is known by its heartbeats only, nobody can tell whether
// a second call is the same owner.
func TestStartAgainWithoutAProcess(t *testing.T) {
	t.Parallel()
	s, _, _ := openRuns(t)
	beat := ckpt.Duration(30 * time.Second)
	begin := func(run string, beat *ckpt.Duration) error {
		_, _, err := s.StartRun(t.Context(), ann, ckpt.RunRequest{Agent: "a", Run: run, HeartbeatTimeout: beat})
		return err
	}
	must(t, begin("beats", &beat))
	err := begin("beats", &beat)
	wantCode(t, err, ckpt.CodeConflict)
	if !strings.Contains(err.Error(), "heartbeat") {
		t.Errorf("the error does not say what shows that the owner is alive: %v", err)
	}
	must(t, begin("nobody", nil))
	must(t, begin("nobody", nil))
}

// TestDescribeWithoutAProcess: a client in a container has a process id that names no process here. It may say what
// the run is for that it has just claimed. Who names another epoch or no process may not.
func TestDescribeWithoutAProcess(t *testing.T) {
	t.Parallel()
	s, _, p := openRuns(t)
	p.unseen = map[int]bool{0: true, 99: true}
	beat := ckpt.Duration(30 * time.Second)
	inside := as(0)
	plan, _, err := s.Resume(t.Context(), inside, ckpt.ResumeRequest{Agent: "a", PID: 99, HeartbeatTimeout: &beat})
	if err != nil {
		t.Fatal(err)
	}
	describe := func(pid int, epoch *int64, goal ckpt.Ref) error {
		_, _, err := s.StartRun(t.Context(), inside, ckpt.RunRequest{Agent: "a", PID: pid, Epoch: epoch, HeartbeatTimeout: &beat, Goal: goal})
		return err
	}
	other := plan.Epoch - 1
	wantCode(t, describe(0, nil, "g0"), ckpt.CodeConflict)
	wantCode(t, describe(0, &other, "g0"), ckpt.CodeConflict)
	wantCode(t, describe(99, &other, "g0"), ckpt.CodeConflict)
	must(t, describe(0, &plan.Epoch, "g1"))
	must(t, describe(99, &plan.Epoch, "g2"))
	wantCode(t, describe(99, nil, "g3"), ckpt.CodeConflict) // process 99 of another container
	run, err := s.Run(t.Context(), ann, mainRun)
	if err != nil || run.Goal != "g2" || run.Epoch != plan.Epoch || run.PID != 0 {
		t.Errorf("%+v %v", run, err)
	}
}

// TestDescribeKeepsTheOwner: who has claimed a run and says what it is for need not name its process and timeouts again.
func TestDescribeKeepsTheOwner(t *testing.T) {
	t.Parallel()
	s, _, _ := openRuns(t)
	beat, grow := ckpt.Duration(7*time.Minute), ckpt.Duration(time.Hour)
	plan, _, err := s.Resume(t.Context(), as(11), ckpt.ResumeRequest{Agent: "a", PID: 11, HeartbeatTimeout: &beat, ProgressTimeout: &grow})
	must(t, err)
	describe := func(r ckpt.RunRequest) *ckpt.Run {
		t.Helper()
		r.Agent, r.Epoch = "a", &plan.Epoch
		run, _, err := s.StartRun(t.Context(), as(12), r)
		must(t, err)
		return run
	}
	run := describe(ckpt.RunRequest{Goal: "g"})
	if run.Goal != "g" || run.PID != 11 || run.HeartbeatTimeout != beat || run.ProgressTimeout != grow {
		t.Errorf("%+v", run)
	}
	less := ckpt.Duration(time.Minute)
	if run = describe(ckpt.RunRequest{PID: 12, ProgressTimeout: &less}); run.PID != 12 || run.HeartbeatTimeout != beat || run.ProgressTimeout != less || run.Epoch != plan.Epoch {
		t.Errorf("%+v", run)
	}
}

// TestFencing: after a second owner has resumed, every kind of write of the
// first is refused.
func TestFencing(t *testing.T) {
	t.Parallel()
	s, _, p := openRuns(t)
	first := start(t, s, 11).Epoch
	save(t, s, as(11), "a", ckpt.KindRoutine, `1`)
	p.kill(11)
	plan := claim(t, s, 12)
	if plan.Epoch <= first || !plan.Claimed {
		t.Fatalf("resumed with epoch %d after %d", plan.Epoch, first)
	}
	for name, write := range everyWrite(t, s, 11, &first) {
		t.Run(name, func(t *testing.T) { wantCode(t, write(), ckpt.CodeFenced) })
	}
}

// TestFencingWithoutAnEpoch: a process that never names an epoch continues to
// write after another process took its run over. Each of its writes is refused
// while the new owner lives. A process that may belong to the owner is not
// refused.
func TestFencingWithoutAnEpoch(t *testing.T) {
	t.Parallel()
	s, _, p := openRuns(t)
	save(t, s, as(11), "a", ckpt.KindRoutine, `1`)
	claim(t, s, 12)
	p.strangers = map[int]bool{11: true, 12: true}
	for name, write := range everyWrite(t, s, 11, nil) {
		t.Run(name, func(t *testing.T) { wantCode(t, write(), ckpt.CodeFenced) })
	}
	save(t, s, as(12), "a", ckpt.KindRoutine, `2`) // the owner
	save(t, s, as(13), "a", ckpt.KindRoutine, `3`) // one of the owner's children
	wantCode(t, everyWrite(t, s, 11, nil)["save"](), ckpt.CodeFenced)
	p.kill(12)
	save(t, s, as(11), "a", ckpt.KindRoutine, `4`)
}

// everyWrite returns each kind of write to the run, by a process that names an
// epoch.
func everyWrite(t *testing.T, s *db.Store, pid int, epoch *int64) map[string]func() error {
	ref := mainRun
	ref.Epoch = epoch
	r := request("a", ckpt.KindRoutine, `2`)
	r.Epoch = epoch
	return map[string]func() error{
		"save": func() error { _, err := s.Save(t.Context(), as(pid), r); return err },
		"beat": func() error {
			_, err := s.Beat(t.Context(), as(pid), mainRun, ckpt.Heartbeat{Epoch: epoch})
			return err
		},
		"step": func() error {
			_, _, err := s.BeginStep(t.Context(), as(pid), mainRun, ckpt.StepRequest{Key: "k", Name: "n", Epoch: epoch})
			return err
		},
		"operation": func() error {
			_, _, err := s.BeginOperation(t.Context(), as(pid), mainRun, ckpt.OperationRequest{Key: "k", Name: "n", Epoch: epoch})
			return err
		},
		"events": func() error {
			_, _, err := s.Append(t.Context(), as(pid), ref, []ckpt.NewEvent{{Type: "t"}}, "")
			return err
		},
		"end": func() error {
			_, _, err := s.EndRun(t.Context(), as(pid), mainRun, ckpt.EndRequest{Status: ckpt.RunCompleted, Epoch: epoch})
			return err
		},
	}
}

// TestTwoOwnersRace: one process writes while another takes the run over, two
// hundred times. A save of the old owner is never accepted after the takeover.
func TestTwoOwnersRace(t *testing.T) {
	t.Parallel()
	s, _, _ := openRuns(t)
	const tries = 200
	for i := range tries {
		agent := fmt.Sprintf("a%d", i%10)
		old, _, err := s.Resume(t.Context(), as(20), ckpt.ResumeRequest{Agent: agent, Force: true})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		var taken *ckpt.Plan
		var saved *ckpt.Saved
		var saveErr error
		wg.Go(func() {
			r := request(agent, ckpt.KindRoutine, fmt.Sprint(i))
			r.Epoch = &old.Epoch
			saved, saveErr = s.Save(t.Context(), as(20), r)
		})
		wg.Go(func() {
			var err error
			if taken, _, err = s.Resume(t.Context(), as(21), ckpt.ResumeRequest{Agent: agent, Force: true}); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		switch {
		case saveErr == nil: // the save came before the takeover, and the plan knows it
			if taken.Checkpoint == nil || taken.Checkpoint.ID != saved.ID {
				t.Fatalf("try %d: the old owner's save was accepted, and the new owner's plan does not know it", i)
			}
		default:
			wantCode(t, saveErr, ckpt.CodeFenced)
		}
	}
}

func TestStepsAreIdempotent(t *testing.T) {
	t.Parallel()
	s, _, _ := openRuns(t)
	begin := ckpt.StepRequest{Key: "call/1", Name: "search", Args: ckpt.JSON(`{"q":"x"}`)}
	step, _, err := s.BeginStep(t.Context(), ann, mainRun, begin)
	if err != nil || step.Status != ckpt.StepStarted || step.Attempt != 1 {
		t.Fatalf("%+v, %v", step, err)
	}
	tokens := int64(7)
	step, _, err = s.FinishStep(t.Context(), ann, mainRun, ckpt.StepRequest{Key: "call/1", Result: ckpt.JSON(`[1, 2]`), OutputTokens: &tokens})
	if err != nil || step.Status != ckpt.StepSucceeded || string(step.Result) != `[1, 2]` || step.DurationMS == nil {
		t.Fatalf("%+v, %v", step, err)
	}
	again, _, err := s.BeginStep(t.Context(), ann, mainRun, begin)
	if err != nil || !again.Replayed || string(again.Result) != `[1, 2]` || *again.OutputTokens != 7 {
		t.Fatalf("begun again: %+v, %v", again, err)
	}
	_, _, err = s.FinishStep(t.Context(), ann, mainRun, ckpt.StepRequest{Key: "none"})
	wantCode(t, err, ckpt.CodeNotFound)
	failed := ckpt.StepRequest{Key: "call/2", Name: "write", Status: ckpt.StepFailed, Error: "no"}
	if _, _, err := s.BeginStep(t.Context(), ann, mainRun, failed); err != nil {
		t.Fatal(err)
	}
	step, _, err = s.BeginStep(t.Context(), ann, mainRun, ckpt.StepRequest{Key: "call/2", Name: "write"})
	if err != nil || step.Attempt != 2 || step.Status != ckpt.StepStarted {
		t.Fatalf("a failed step is begun again as %+v, %v", step, err)
	}
	page, err := s.Steps(t.Context(), ann, mainRun, ckpt.ListFilter{Status: "succeeded"})
	if err != nil || len(page.Steps) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
}

func TestOperationLife(t *testing.T) {
	t.Parallel()
	s, _, _ := openRuns(t)
	save(t, s, ann, "a", ckpt.KindRoutine, `{"n":0}`)
	o, _, err := s.BeginOperation(t.Context(), ann, mainRun, ckpt.OperationRequest{Key: "deploy", Name: "deploy", State: ckpt.JSON(`{"n": 1}`)})
	if err != nil || o.Status != ckpt.OperationOpen || o.Checkpoint == "" {
		t.Fatalf("%+v, %v", o, err)
	}
	ended, _, err := s.EndOperation(t.Context(), ann, mainRun, ckpt.OperationEnd{Key: "deploy", Status: ckpt.OperationFailed, Error: "boom"})
	if err != nil || ended.Restore == nil || string(ended.Restore.State) != `{"n": 1}` {
		t.Fatalf("failed: %+v, %v", ended, err)
	}
	second, _, err := s.BeginOperation(t.Context(), ann, mainRun, ckpt.OperationRequest{Key: "deploy", Name: "deploy"})
	if err != nil || second.Attempt != 2 || second.Checkpoint == "" {
		t.Fatalf("%+v, %v", second, err)
	}
	save(t, s, ann, "a", ckpt.KindRoutine, `{"n":2}`)
	ended, _, err = s.EndOperation(t.Context(), ann, mainRun, ckpt.OperationEnd{Key: "deploy", Status: ckpt.OperationSucceeded})
	if err != nil || len(ended.Released) != 2 {
		t.Fatalf("success released %v, want both attempts' checkpoints: %v", ended, err)
	}
	again, _, err := s.BeginOperation(t.Context(), ann, mainRun, ckpt.OperationRequest{Key: "deploy", Name: "deploy"})
	if err != nil || !again.Replayed {
		t.Fatalf("an operation that succeeded is begun again: %+v, %v", again, err)
	}
	sound(t, pathOf(s))
}

func TestUncertainOperation(t *testing.T) {
	t.Parallel()
	s, _, p := openRuns(t)
	start(t, s, 11)
	if _, _, err := s.BeginOperation(t.Context(), as(11), mainRun, ckpt.OperationRequest{Key: "pay", Name: "pay", State: ckpt.JSON(`{"paid":false}`)}); err != nil {
		t.Fatal(err)
	}
	p.kill(11)
	plan := claim(t, s, 12)
	wantVerdict(t, plan, ckpt.VerdictAsk)
	if plan.Claimed || plan.Prompt == nil || len(plan.UncertainOperations) != 1 {
		t.Fatalf("%+v", plan)
	}
	if again := claim(t, s, 12); again.Prompt.ID != plan.Prompt.ID {
		t.Error("asking again made another prompt")
	}
	end := ckpt.OperationResolution{Key: "pay", Choice: ckpt.ChoiceItDid, Reason: "the bank says so"}
	ended, _, err := s.ResolveOperation(t.Context(), ann, mainRun, end)
	if err != nil || ended.Status != ckpt.OperationSucceeded {
		t.Fatalf("%+v, %v", ended, err)
	}
	plan = claim(t, s, 12)
	if plan.Verdict == ckpt.VerdictAsk || !plan.Claimed {
		t.Errorf("after the operator resolved it: %+v", plan)
	}
}

func TestEventsHaveNoGaps(t *testing.T) {
	t.Parallel()
	s, _, _ := openRuns(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				if _, _, err := s.Append(t.Context(), ann, mainRun, []ckpt.NewEvent{{Type: "x"}, {Type: "y", Payload: ckpt.JSON(`{"a":1}`)}}, ""); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	after := int64(0)
	for {
		page, err := s.Events(t.Context(), ann, mainRun, after, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Events {
			if after++; e.Seq != after {
				t.Fatalf("event %d after %d", e.Seq, after-1)
			}
		}
		if page.Next == nil {
			break
		}
	}
	if after != 320 {
		t.Errorf("%d events, want 320", after)
	}
	sound(t, pathOf(s))
}

func TestMaxEvents(t *testing.T) {
	t.Parallel()
	s, _, _ := openRuns(t)
	p := ckpt.DefaultPolicy()
	p.MaxEvents = 10
	if _, err := s.SetPolicy(t.Context(), ann, "a", p); err != nil {
		t.Fatal(err)
	}
	for range 25 {
		if _, _, err := s.Append(t.Context(), ann, mainRun, []ckpt.NewEvent{{Type: "x"}}, ""); err != nil {
			t.Fatal(err)
		}
	}
	page, err := s.Events(t.Context(), ann, mainRun, 0, 100)
	if err != nil || len(page.Events) != 10 || page.Events[0].Seq != 16 {
		t.Fatalf("%+v, %v", page, err)
	}
	sound(t, pathOf(s))
}

func TestForkAndTree(t *testing.T) {
	t.Parallel()
	s, _, _ := openRuns(t)
	origin := save(t, s, ann, "a", ckpt.KindRoutine, `{"from":"main"}`)
	_, _, err := s.StartRun(t.Context(), ann, ckpt.RunRequest{Agent: "a", Run: "try", ForkFrom: ckpt.Ref(origin.ID)})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 { // the checkpoint that the fork starts from stays until the fork has saved
		save(t, s, ann, "a", ckpt.KindRoutine, fmt.Sprint(i))
	}
	plan, _, err := s.Resume(t.Context(), ann, ckpt.ResumeRequest{Agent: "a", Run: "try"})
	if err != nil || plan.Checkpoint == nil || plan.Checkpoint.ID != origin.ID {
		t.Fatalf("the fork resumes with %+v, %v", plan.Checkpoint, err)
	}
	r := request("a", ckpt.KindRoutine, `{"fork":1}`)
	r.Run = "try"
	c, err := s.Save(t.Context(), ann, r)
	if err != nil || string(c.Parent) != origin.ID {
		t.Fatalf("the fork's first checkpoint comes from %q, %v", c.Parent, err)
	}
	sound(t, pathOf(s))
	_, _, err = s.StartRun(t.Context(), ann, ckpt.RunRequest{Agent: "a", Run: "other", ForkFrom: ckpt.Ref(uuid.Must(uuid.NewV7()).String())})
	wantCode(t, err, ckpt.CodeNotFound)
}
