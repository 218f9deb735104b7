package db_test

import (
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/resume"
)

// die kills the owner of the main run and lets the monitor report it.
func die(t testing.TB, s *db.Store, p *processes, pid int, status ckpt.RunStatus) {
	t.Helper()
	p.kill(pid)
	watched, err := s.Watched(t.Context(), 0, 10)
	if err != nil || len(watched) != 1 {
		t.Fatalf("watched %v, %v", watched, err)
	}
	did, err := s.Interrupt(t.Context(), watched[0], status, "its process is gone")
	if err != nil || !did {
		t.Fatalf("interrupted %v, %v", did, err)
	}
}

func TestFreshRun(t *testing.T) {
	t.Parallel()
	s, _, _ := openRuns(t)
	plan := claim(t, s, 11, func(r *ckpt.ResumeRequest) { r.DryRun = true })
	wantVerdict(t, plan, ckpt.VerdictFresh)
	if plan.Claimed {
		t.Error("a dry run claimed")
	}
	if page, _ := s.Agents(t.Context(), ann, ckpt.AgentFilter{}); len(page.Agents) != 0 {
		t.Error("a dry run made an agent")
	}
	plan = claim(t, s, 11)
	wantVerdict(t, plan, ckpt.VerdictFresh)
	if !plan.Claimed || plan.Epoch != 1 {
		t.Errorf("%+v", plan)
	}
}

func TestResumeAfterDeath(t *testing.T) {
	t.Parallel()
	s, c, p := openRuns(t)
	start(t, s, 11)
	save(t, s, as(11), "a", ckpt.KindRoutine, `{"done": 1}`)
	step := func(key string, status ckpt.StepStatus) {
		if _, _, err := s.BeginStep(t.Context(), as(11), mainRun, ckpt.StepRequest{Key: key, Name: key, Status: status}); err != nil {
			t.Fatal(err)
		}
	}
	step("s1", ckpt.StepSucceeded)
	last := save(t, s, as(11), "a", ckpt.KindRoutine, `{"done": 2}`)
	step("s2", ckpt.StepSucceeded)
	step("s3", "")
	c.add(time.Minute)
	if _, err := s.Beat(t.Context(), as(11), mainRun, ckpt.Heartbeat{}); err != nil {
		t.Fatal(err)
	}
	c.add(time.Hour) // the owner is dead and nobody has noticed
	die(t, s, p, 11, ckpt.RunInterrupted)
	plan := claim(t, s, 12)
	wantVerdict(t, plan, ckpt.VerdictRepair)
	if plan.Checkpoint.ID != last.ID || string(plan.Checkpoint.State) != `{"done": 2}` {
		t.Errorf("resumes with %+v", plan.Checkpoint)
	}
	if len(plan.CompletedSteps) != 1 || plan.CompletedSteps[0].Key != "s2" {
		t.Errorf("completed since: %+v", plan.CompletedSteps)
	}
	if len(plan.InterruptedSteps) != 1 || plan.InterruptedSteps[0].Key != "s3" {
		t.Errorf("interrupted: %+v", plan.InterruptedSteps)
	}
	if plan.AccumulatedMS != 60_000 {
		t.Errorf("accumulated %d ms, want the time to the last sign of life", plan.AccumulatedMS)
	}
	next := save(t, s, as(12), "a", ckpt.KindRoutine, `{"done": 3}`)
	if string(next.Parent) != last.ID {
		t.Errorf("the next save comes from %s", next.Parent)
	}
	sound(t, pathOf(s))
}

// TestWhatADeathLeavesOpen: when a death is noticed, running steps become interrupted and open operations become
// uncertain, before a plan is requested.
func TestWhatADeathLeavesOpen(t *testing.T) {
	t.Parallel()
	s, _, p := openRuns(t)
	start(t, s, 11)
	_, _, err := s.BeginStep(t.Context(), as(11), mainRun, ckpt.StepRequest{Key: "s1", Name: "look"})
	must(t, err)
	_, _, err = s.BeginOperation(t.Context(), as(11), mainRun, ckpt.OperationRequest{Key: "o1", Name: "push"})
	must(t, err)
	die(t, s, p, 11, ckpt.RunInterrupted)
	steps, err := s.Steps(t.Context(), as(12), mainRun, ckpt.ListFilter{})
	must(t, err)
	if len(steps.Steps) != 1 || steps.Steps[0].Status != ckpt.StepInterrupted || steps.Steps[0].EndedAt.IsZero() {
		t.Errorf("the step is %+v", steps.Steps)
	}
	operations, err := s.Operations(t.Context(), as(12), mainRun, ckpt.ListFilter{})
	must(t, err)
	if len(operations.Operations) != 1 || operations.Operations[0].Status != ckpt.OperationUncertain || operations.Operations[0].EndedAt.IsZero() {
		t.Errorf("the operation is %+v", operations.Operations)
	}
}

// TestASpooledEndIsTakenAfterASweep: the beginning and the end of an operation were spooled, and the monitor finds the process dead
// between the two. The end is what the code knows, so it is taken, unless a person has answered otherwise, or the attempt did not
// begin in the spool.
func TestASpooledEndIsTakenAfterASweep(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end      ckpt.OperationStatus
		online   bool              // it began with the daemon
		answer   ckpt.PromptChoice // of a person, before the end arrives
		earlier  bool              // the end was spooled before the attempt began
		code     ckpt.Code
		want, by string
	}{
		"it succeeded":              {end: ckpt.OperationSucceeded, want: "succeeded", by: ckpt.ResolvedByOwner},
		"it was not done":           {end: ckpt.OperationFailed, want: "failed", by: ckpt.ResolvedByOwner},
		"a person said no":          {end: ckpt.OperationSucceeded, answer: ckpt.ChoiceItDidNot, code: ckpt.CodeConflict, want: "failed", by: ann.Caller.Owner},
		"a person said repeat":      {end: ckpt.OperationSucceeded, answer: ckpt.ChoiceRepeat, code: ckpt.CodeConflict, want: "superseded", by: ann.Caller.Owner},
		"it began with the daemon":  {end: ckpt.OperationSucceeded, online: true, code: ckpt.CodeUncertainOperation, want: "uncertain"},
		"the end is of another try": {end: ckpt.OperationSucceeded, earlier: true, code: ckpt.CodeUncertainOperation, want: "uncertain"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, clock, _ := openRuns(t)
			run := start(t, s, 1)
			begun := as(1)
			begun.Spooled = ckpt.At(clock.Now())
			ended := begun
			ended.Spooled = ckpt.At(clock.Now().Add(time.Second))
			if c.earlier {
				ended.Spooled = ckpt.At(clock.Now().Add(-time.Second))
			}
			if c.online {
				begun.Spooled = ckpt.Time{}
			}
			clock.add(time.Minute)
			_, _, err := s.BeginOperation(t.Context(), begun, at(run.Epoch), ckpt.OperationRequest{Key: "pay", Name: "pay", State: ckpt.JSON(`1`)})
			must(t, err)
			dies(t, s, "a", "main")
			if c.answer != "" {
				_, _, err := s.ResolveOperation(t.Context(), ann, mainRun, ckpt.OperationResolution{Key: "pay", Choice: c.answer, Reason: "looked"})
				must(t, err)
			}
			_, _, err = s.EndOperation(t.Context(), ended, at(run.Epoch), ckpt.OperationEnd{Key: "pay", Status: c.end, Error: "why"})
			wantCode(t, err, c.code)
			got := sqlite3(t, pathOf(s), `SELECT status || ' ' || coalesce(resolved_by, '') FROM audit_operations`)
			if got != strings.TrimSpace(c.want+" "+c.by) && got != c.want+" "+c.by {
				t.Errorf("the attempt is %q", got)
			}
			open := sqlite3(t, pathOf(s), `SELECT count(*) FROM prompts WHERE answered_at IS NULL AND kind = 'operation'`)
			if (open == "1") != (c.want == "uncertain") {
				t.Errorf("%s questions about it are open", open)
			}
		})
	}
}

// TestSpooledWritesReviveNobody: writes that a client spooled before it died arrive after its death was noticed.
// They do not make the run look alive.
func TestSpooledWritesReviveNobody(t *testing.T) {
	t.Parallel()
	s, _, p := openRuns(t)
	start(t, s, 11)
	save(t, s, as(11), "a", ckpt.KindRoutine, `{"n":1}`)
	die(t, s, p, 11, ckpt.RunInterrupted)
	late := as(99) // the process that replays the spool
	late.Spooled = ckpt.At(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	last := save(t, s, late, "a", ckpt.KindRoutine, `{"n":2}`)
	if _, _, err := s.BeginStep(t.Context(), late, mainRun, ckpt.StepRequest{Key: "s1", Name: "s", Status: ckpt.StepSucceeded}); err != nil {
		t.Fatal(err)
	}
	run, err := s.Run(t.Context(), as(12), mainRun)
	if err != nil || run.Status != ckpt.RunInterrupted {
		t.Errorf("after a late write the run is %v, %v", run, err)
	}
	page, err := s.Audit(t.Context(), as(12), ckpt.AuditFilter{Action: "save"})
	if err != nil || page.Audit[len(page.Audit)-1].Reason != "spooled by the client at 2026-03-01T12:00:00.000Z" {
		t.Errorf("the audit log says %+v, %v", page, err)
	}
	plan := claim(t, s, 12, func(r *ckpt.ResumeRequest) { beat := ckpt.Duration(time.Minute); r.HeartbeatTimeout = &beat })
	if !plan.Claimed || plan.Checkpoint.ID != last.ID || len(plan.CompletedSteps) != 1 {
		t.Errorf("the plan is %+v", plan)
	}
	die(t, s, p, 12, ckpt.RunTimedOut)
	save(t, s, as(12), "a", ckpt.KindRoutine, `{"n":3}`) // a direct write does
	if run, err := s.Run(t.Context(), as(12), mainRun); err != nil || run.Status != ckpt.RunRunning {
		t.Errorf("after its own write the run is %v, %v", run, err)
	}
	sound(t, pathOf(s))
}

func TestLiveOwnerIsUnsafe(t *testing.T) {
	t.Parallel()
	s, _, _ := openRuns(t)
	start(t, s, 11)
	save(t, s, as(11), "a", ckpt.KindRoutine, `1`)
	plan := claim(t, s, 12)
	wantVerdict(t, plan, ckpt.VerdictUnsafe)
	if plan.Claimed {
		t.Error("an unsafe run was claimed")
	}
	forced := claim(t, s, 12, func(r *ckpt.ResumeRequest) { r.Force = true })
	if !forced.Claimed || forced.Checkpoint == nil {
		t.Errorf("forced: %+v", forced)
	}
}

func TestReusedPIDIsNotTheOwner(t *testing.T) {
	t.Parallel()
	s, _, _ := openRuns(t)
	start(t, s, 11)
	save(t, s, as(11), "a", ckpt.KindRoutine, `1`)
	if err := s.ExecForTest(`UPDATE runs SET process_start = '99'`); err != nil { // another process has this pid now
		t.Fatal(err)
	}
	plan := claim(t, s, 12)
	if !plan.Claimed {
		t.Errorf("a reused pid was taken for the owner: %+v", plan)
	}
}

func TestSuspectsArePassedOver(t *testing.T) {
	t.Parallel()
	s, _, p := openRuns(t)
	start(t, s, 11)
	clean := save(t, s, as(11), "a", ckpt.KindRoutine, `{"good":true}`)
	_, _, err := s.PostFinding(t.Context(), as(11), "a", ckpt.FindingRequest{Rule: "mine", Severity: ckpt.SeverityCritical, Message: "It is wrong.",
		SinceSeq: &clean.Seq})
	must(t, err)
	for i := range 6 { // each is suspect
		save(t, s, as(11), "a", ckpt.KindRoutine, fmt.Sprint(i))
	}
	die(t, s, p, 11, ckpt.RunInterrupted)
	plan := claim(t, s, 12)
	wantVerdict(t, plan, ckpt.VerdictRepair)
	if plan.Checkpoint.ID != clean.ID || len(plan.Skipped) != 4 { // with the recovery checkpoint
		t.Errorf("resumes with %+v, skipped %+v", plan.Checkpoint, plan.Skipped)
	}
}

func TestDamagedCheckpointsArePassedOver(t *testing.T) {
	t.Parallel()
	s, _, p := openRuns(t)
	start(t, s, 11)
	good := save(t, s, as(11), "a", ckpt.KindRoutine, `{"n":1}`)
	bad := save(t, s, as(11), "a", ckpt.KindRoutine, `{"n":2}`)
	if err := s.ExecForTest(`UPDATE checkpoints SET body = CAST('{"n":9}' AS BLOB) WHERE id = ?`, bad.ID); err != nil {
		t.Fatal(err)
	}
	die(t, s, p, 11, ckpt.RunInterrupted)
	plan := claim(t, s, 12)
	wantVerdict(t, plan, ckpt.VerdictRepair)
	if plan.Checkpoint.ID != good.ID || len(plan.Skipped) != 1 || plan.Skipped[0].ID != bad.ID {
		t.Fatalf("%+v %+v", plan.Checkpoint, plan.Skipped)
	}
	if err := s.ExecForTest(`UPDATE checkpoints SET body = CAST('{"n":9}' AS BLOB)`); err != nil {
		t.Fatal(err)
	}
	plan = claim(t, s, 13, func(r *ckpt.ResumeRequest) { r.Force = true })
	wantVerdict(t, plan, ckpt.VerdictUnsafe)
	if plan.Checkpoint != nil || plan.Claimed {
		t.Errorf("damaged states were served: %+v", plan)
	}
}

func TestPromptsWithoutAutoresume(t *testing.T) {
	t.Parallel()
	answers := map[ckpt.PromptChoice]ckpt.ResumeVerdict{
		ckpt.ChoiceResume: ckpt.VerdictResume, ckpt.ChoiceReinitialize: ckpt.VerdictFresh, ckpt.ChoiceAbandon: ckpt.VerdictFresh,
	}
	for choice, want := range answers {
		t.Run(string(choice), func(t *testing.T) {
			s, c, p := openRuns(t)
			policy := ckpt.DefaultPolicy()
			policy.Autoresume = false
			if _, err := s.SetPolicy(t.Context(), ann, "a", policy); err != nil {
				t.Fatal(err)
			}
			start(t, s, 11)
			save(t, s, as(11), "a", ckpt.KindRoutine, `{"memory":"much"}`)
			c.add(time.Minute)
			die(t, s, p, 11, ckpt.RunTimedOut)
			page, err := s.Prompts(t.Context(), ann, ckpt.PromptFilter{Open: true})
			if err != nil || len(page.Prompts) != 1 {
				t.Fatalf("%+v, %v", page, err)
			}
			if diff := string(page.Prompts[0].MemoryDiff); !strings.HasPrefix(diff, "[") {
				t.Errorf("the prompt does not show what would be lost: %s", diff)
			}
			c.add(time.Minute)
			wantVerdict(t, claim(t, s, 12), ckpt.VerdictAsk)
			c.add(time.Minute)
			a := ckpt.PromptAnswer{ID: page.Prompts[0].ID, Choice: choice}
			if _, _, err := s.AnswerPrompt(t.Context(), bob, a); ckpt.CodeOf(err) != ckpt.CodeNotFound {
				t.Errorf("somebody else could answer: %v", err)
			}
			answered, _, err := s.AnswerPrompt(t.Context(), ann, a)
			if err != nil || answered.Choice != ckpt.Ref(choice) || string(answered.AnsweredBy) != ann.Caller.Owner {
				t.Fatalf("%+v, %v", answered, err)
			}
			_, _, err = s.AnswerPrompt(t.Context(), ann, a)
			wantCode(t, err, ckpt.CodeConflict)
			c.add(time.Minute)
			run, err := s.Run(t.Context(), ann, mainRun)
			if err != nil || (choice == ckpt.ChoiceAbandon) != (run.Status == ckpt.RunFailed) {
				t.Errorf("the run is %+v, %v", run, err)
			}
			plan := claim(t, s, 12)
			wantVerdict(t, plan, want)
			if !plan.Claimed || (plan.Checkpoint != nil) != (choice == ckpt.ChoiceResume) {
				t.Errorf("%+v", plan)
			}
			sound(t, pathOf(s))
		})
	}
}

// TestAbandonedRunIsJudgedAsEnded: an abandoned run has ended, and retention applies that in the same transaction.
// Its newest clean checkpoint is no longer a rollback target.
func TestAbandonedRunIsJudgedAsEnded(t *testing.T) {
	t.Parallel()
	s, c, p := openRuns(t)
	policy := ckpt.DefaultPolicy()
	policy.Autoresume, policy.RoutineKeep = false, 1
	_, err := s.SetPolicy(t.Context(), ann, "a", policy)
	must(t, err)
	start(t, s, 11)
	clean := save(t, s, as(11), "a", ckpt.KindRoutine, `{"clean":true}`)
	since := clean.Seq
	_, _, err = s.PostFinding(t.Context(), ann, "a", ckpt.FindingRequest{Run: "main", Rule: "own", Severity: ckpt.SeverityCritical, Message: "It went wrong.", SinceSeq: &since})
	must(t, err)
	save(t, s, as(11), "a", ckpt.KindRoutine, `{"clean":false}`)
	c.add(time.Minute)
	die(t, s, p, 11, ckpt.RunTimedOut)
	page, err := s.Prompts(t.Context(), ann, ckpt.PromptFilter{Open: true})
	must(t, err)
	_, err = s.Checkpoint(t.Context(), ann, clean.ID, false)
	must(t, err) // it is the rollback target
	for _, prompt := range page.Prompts {
		_, _, err = s.AnswerPrompt(t.Context(), ann, ckpt.PromptAnswer{ID: prompt.ID, Choice: ckpt.ChoiceAbandon})
		must(t, err)
	}
	_, err = s.Checkpoint(t.Context(), ann, clean.ID, false)
	wantCode(t, err, ckpt.CodeNotFound)
	sound(t, pathOf(s))
}

func TestInterruptLooksAgain(t *testing.T) {
	t.Parallel()
	s, c, _ := openRuns(t)
	beat := ckpt.Duration(10 * time.Second)
	if _, _, err := s.StartRun(t.Context(), as(11), ckpt.RunRequest{Agent: "a", HeartbeatTimeout: &beat}); err != nil {
		t.Fatal(err)
	}
	watched, err := s.Watched(t.Context(), 0, 10)
	if err != nil || len(watched) != 1 || watched[0].HeartbeatTimeout != 10*time.Second {
		t.Fatalf("%+v, %v", watched, err)
	}
	c.add(time.Minute)
	if _, err := s.Beat(t.Context(), as(11), mainRun, ckpt.Heartbeat{}); err != nil {
		t.Fatal(err)
	}
	did, err := s.Interrupt(t.Context(), watched[0], ckpt.RunTimedOut, "late")
	if err != nil || did {
		t.Errorf("a run that had beaten since was interrupted: %v, %v", did, err)
	}
}

func TestWriteRevivesARunFoundDead(t *testing.T) {
	t.Parallel()
	s, _, p := openRuns(t)
	start(t, s, 11)
	die(t, s, p, 11, ckpt.RunTimedOut)
	save(t, s, as(11), "a", ckpt.KindRoutine, `1`)
	run, err := s.Run(t.Context(), ann, mainRun)
	if err != nil || run.Status != ckpt.RunRunning {
		t.Errorf("%+v, %v", run, err)
	}
}

// TestLateWritesOfAnEndedSegment writes into a run whose owner has ended it, like a save that nobody waited for.
// The save is kept, and the run stays ended until it is resumed, even if it had been found dead before.
func TestLateWritesOfAnEndedSegment(t *testing.T) {
	t.Parallel()
	for _, status := range []ckpt.RunStatus{ckpt.RunInterrupted, ckpt.RunSuspended, ckpt.RunAwaitingContinuation} {
		for _, diedBefore := range []bool{false, true} {
			s, _, p := openRuns(t)
			epoch := claim(t, s, 11).Epoch
			if diedBefore {
				die(t, s, p, 11, ckpt.RunInterrupted)
				save(t, s, as(11), "a", ckpt.KindRoutine, `0`)
			}
			if _, _, err := s.EndRun(t.Context(), as(11), mainRun, ckpt.EndRequest{Epoch: &epoch, Status: status}); err != nil {
				t.Fatal(err)
			}
			late := save(t, s, as(11), "a", ckpt.KindRoutine, `1`)
			if _, err := s.Beat(t.Context(), as(11), mainRun, ckpt.Heartbeat{Epoch: &epoch}); err != nil {
				t.Fatal(err)
			}
			if run, err := s.Run(t.Context(), ann, mainRun); err != nil || run.Status != status {
				t.Errorf("%s, died before: %t: %+v, %v", status, diedBefore, run, err)
			}
			plan := claim(t, s, 12)
			if plan.Epoch != epoch+1 || plan.Checkpoint == nil || plan.Checkpoint.ID != late.ID {
				t.Errorf("%s, died before: %t: the late save is not what the next owner goes on from: %+v", status, diedBefore, plan)
			}
		}
	}
}

// TestSupervisorsBeatRevivesNobody: a supervisor sends a last heartbeat about an owner that the monitor has just
// found dead. The run must not look owned by an unknown process, because then it would never be resumed.
func TestSupervisorsBeatRevivesNobody(t *testing.T) {
	t.Parallel()
	s, _, p := openRuns(t)
	minute := ckpt.Duration(time.Minute)
	run, _, err := s.StartRun(t.Context(), as(11), ckpt.RunRequest{Agent: "a", PID: 11, HeartbeatTimeout: &minute})
	if err != nil {
		t.Fatal(err)
	}
	die(t, s, p, 11, ckpt.RunInterrupted)
	if _, err := s.Beat(t.Context(), as(10), mainRun, ckpt.Heartbeat{Epoch: &run.Epoch, PID: 11}); err != nil {
		t.Fatal(err)
	}
	_, err = s.Beat(t.Context(), as(10), mainRun, ckpt.Heartbeat{Epoch: &run.Epoch, PID: -1})
	wantCode(t, err, ckpt.CodeInvalid)
	if plan := claim(t, s, 12); plan.Epoch != run.Epoch+1 {
		t.Errorf("the run was not claimed: %+v", plan)
	}
}

// TestCopiesKnowNoMoreThanTheirState begins operations without a state, so that the newest state is kept once more.
// Steps that were done since that state was saved are not in it, and the plan still lists them as done.
func TestCopiesKnowNoMoreThanTheirState(t *testing.T) {
	t.Parallel()
	for _, size := range []int{10, 20_000} { // in the row, and in pieces
		s, _, p := openRuns(t)
		start(t, s, 11)
		save(t, s, as(11), "a", ckpt.KindRoutine, `"`+strings.Repeat("x", size)+`"`)
		did := func(key string) {
			r := ckpt.StepRequest{Key: key, Name: "fetch", Status: ckpt.StepSucceeded, Result: ckpt.JSON(`1`)}
			if _, _, err := s.BeginStep(t.Context(), as(11), mainRun, r); err != nil {
				t.Fatal(err)
			}
		}
		risk := func(key string) {
			if _, _, err := s.BeginOperation(t.Context(), as(11), mainRun, ckpt.OperationRequest{Key: key, Name: "rm"}); err != nil {
				t.Fatal(err)
			}
		}
		did("s1")
		risk("o1")
		did("s2")
		risk("o2") // a copy of the copy
		did("s3")
		die(t, s, p, 11, ckpt.RunInterrupted)
		var keys []string
		plan := claim(t, s, 12)
		for _, step := range plan.CompletedSteps {
			keys = append(keys, step.Key)
		}
		if !slices.Equal(keys, []string{"s1", "s2", "s3"}) || plan.Checkpoint.Kind != ckpt.KindPreOperation {
			t.Errorf("done since the %s checkpoint %d: %v", plan.Checkpoint.Kind, plan.Checkpoint.Seq, keys)
		}
	}
}

func TestSuspendedRun(t *testing.T) {
	t.Parallel()
	s, c, _ := openRuns(t)
	run := start(t, s, 11)
	save(t, s, as(11), "a", ckpt.KindRoutine, `1`)
	c.add(time.Minute)
	run, _, err := s.EndRun(t.Context(), as(11), mainRun, ckpt.EndRequest{Epoch: &run.Epoch, Status: ckpt.RunAwaitingContinuation, ContinuationPrompt: "go on with step 7"})
	if err != nil || run.AccumulatedMS != 60_000 {
		t.Fatalf("%+v, %v", run, err)
	}
	c.add(time.Hour)
	plan := claim(t, s, 12)
	wantVerdict(t, plan, ckpt.VerdictResume)
	if plan.ContinuationPrompt != "go on with step 7" || plan.AccumulatedMS != 60_000 {
		t.Errorf("%+v", plan)
	}
}

// TestAPlanIsNotRepeatedWithoutItsCheckpoint: if the checkpoint of a plan is gone, the plan is not
// answered again without it, which would mean to start from nothing.
func TestAPlanIsNotRepeatedWithoutItsCheckpoint(t *testing.T) {
	t.Parallel()
	a := newAsker(t)
	save(t, a.Store, ann, "a", ckpt.KindRoutine, `{"n":1}`)
	r := ckpt.ResumeRequest{Agent: "a", PID: 11, IdempotencyKey: "k"}
	first, _, err := a.Resume(t.Context(), ann, r)
	must(t, err)
	again, replayed, err := a.Resume(t.Context(), ann, r)
	if err != nil || !replayed || again.Checkpoint == nil || string(again.Checkpoint.State) != `{"n":1}` {
		t.Fatalf("%+v, replayed %v, error %v", again, replayed, err)
	}
	_, err = a.Delete(t.Context(), ann, first.Checkpoint.ID)
	must(t, err)
	again, _, err = a.Resume(t.Context(), ann, r)
	wantCode(t, err, ckpt.CodeConflict)
	if again != nil {
		t.Errorf("the verdict is %s, and the checkpoint is %v", again.Verdict, again.Checkpoint)
	}
}

// TestAnAnswerIsNotForLaterInterruptions: after the clock was set back, an answer from before does not count for a later
// interruption, if the policy asks after each one.
func TestAnAnswerIsNotForLaterInterruptions(t *testing.T) {
	t.Parallel()
	c, p := newClock(), &processes{dead: map[int]bool{}}
	o := options(t.TempDir()+"/ckpt.db", c)
	o.Resume, o.Processes = resume.Make, p
	s := openWith(t, o)
	policy := ckpt.DefaultPolicy()
	policy.Autoresume = false
	_, err := s.SetPolicy(t.Context(), ann, "a", policy)
	must(t, err)
	_, _, err = s.StartRun(t.Context(), ann, ckpt.RunRequest{Agent: "a", PID: 100})
	must(t, err)
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	for pid := range 3 {
		p.dead[100+pid] = true
		r := ckpt.ResumeRequest{Agent: "a", PID: 101 + pid}
		plan, _, err := s.Resume(t.Context(), ann, r)
		must(t, err)
		if plan.Verdict != ckpt.VerdictAsk {
			t.Fatalf("interruption %d: %s %q", pid, plan.Verdict, plan.Reasons)
		}
		_, _, err = s.AnswerPrompt(t.Context(), ann, ckpt.PromptAnswer{ID: plan.Prompt.ID, Choice: ckpt.ChoiceResume})
		must(t, err)
		if plan, _, err = s.Resume(t.Context(), ann, r); err != nil || !plan.Claimed {
			t.Fatalf("after the answer: %+v, %v", plan, err)
		}
		c.add(-time.Hour)
	}
}

// TestTheIntactOneBehindManyDamagedOnes: one damaged piece can harm many states. The plan goes back
// to the newest state without it, however many are newer.
func TestTheIntactOneBehindManyDamagedOnes(t *testing.T) {
	t.Parallel()
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
	o.Resume, o.Processes = resume.Make, &processes{dead: map[int]bool{}}
	s := openWith(t, o)
	p := ckpt.DefaultPolicy()
	p.RoutineKeep = 0
	_, err := s.SetPolicy(t.Context(), ann, "a", p)
	must(t, err)
	intact := save(t, s, ann, "a", ckpt.KindRoutine, `{"intact":true}`)
	text := hex.EncodeToString(noise(7, 20000))
	const damaged = 100
	for i := range damaged {
		save(t, s, ann, "a", ckpt.KindRoutine, fmt.Sprintf(`{"text":"%s","n":%d}`, text, i))
	}
	must(t, s.EmptyWAL())
	must(t, s.Close())
	forge(t, o.Path, `UPDATE segments SET data = CAST(substr(data, 1, 40) || x'ffff' || substr(data, 43) AS BLOB) WHERE size > 10000;`)
	s = openWith(t, o)
	plan, _, err := s.Resume(t.Context(), ann, ckpt.ResumeRequest{Agent: "a"})
	must(t, err)
	if plan.Verdict != ckpt.VerdictRepair || plan.Checkpoint == nil || plan.Checkpoint.ID != intact.ID || len(plan.Skipped) != damaged {
		t.Errorf("%s, %d skipped: %q", plan.Verdict, len(plan.Skipped), plan.Reasons)
	}
}

// wantTold fails the test unless a change of the prompts was told. It is told before the call returns.
func wantTold(t testing.TB, changed <-chan struct{}) {
	t.Helper()
	select {
	case <-changed:
	default:
		t.Error("whoever waits for the prompt is not told")
	}
}

// TestAWithdrawnDecision: a claim that needs no answer withdraws the prompt. Whoever waits for the
// answer is told, and a late answer is told why it is refused.
func TestAWithdrawnDecision(t *testing.T) {
	t.Parallel()
	s, _, p := openRuns(t)
	_, err := s.SetOwnPolicy(t.Context(), ann, "a", []byte(`{"autoresume":false}`))
	must(t, err)
	start(t, s, 11)
	save(t, s, as(11), "a", ckpt.KindRoutine, `1`)
	die(t, s, p, 11, ckpt.RunInterrupted)
	plan := claim(t, s, 12)
	wantVerdict(t, plan, ckpt.VerdictAsk)
	_, err = s.SetOwnPolicy(t.Context(), ann, "a", []byte(`{}`))
	must(t, err)
	changed := s.PromptsChanged()
	if resolved := claim(t, s, 12); !resolved.Claimed {
		t.Fatalf("after it was resolved: %+v", resolved)
	}
	wantTold(t, changed)
	_, _, err = s.AnswerPrompt(t.Context(), ann, ckpt.PromptAnswer{ID: plan.Prompt.ID, Choice: ckpt.ChoiceResume})
	wantCode(t, err, ckpt.CodeConflict)
	if !strings.Contains(err.Error(), "was withdrawn") {
		t.Errorf("a late answer is refused with %v", err)
	}
}
