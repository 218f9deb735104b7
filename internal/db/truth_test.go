package db_test

import (
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
)

// Each of these tests makes a history by the calls that agents and operators
// make, and compares the plan with the facts.

// says fails the test unless the reasons of a plan contain some texts. They
// must not contain the texts that begin with "not ".
func says(t *testing.T, plan *ckpt.Plan, texts ...string) {
	t.Helper()
	reasons := strings.Join(plan.Reasons, "\n")
	for _, text := range texts {
		bad, not := strings.CutPrefix(text, "not ")
		if strings.Contains(reasons, bad) == not {
			t.Errorf("want %q in\n%s", text, reasons)
		}
	}
}

func look(t *testing.T, s *db.Store) *ckpt.Plan {
	t.Helper()
	plan, _, err := s.Resume(t.Context(), ann, ckpt.ResumeRequest{Agent: "a", DryRun: true})
	must(t, err)
	return plan
}

// TestPlanAndLatestAgreeAfterARestore: after a restore of an older checkpoint,
// both the plan and the latest checkpoint continue from it.
func TestPlanAndLatestAgreeAfterARestore(t *testing.T) {
	t.Parallel()
	s, _, _ := openRuns(t)
	save(t, s, ann, "a", ckpt.KindRoutine, `{"n":1}`)
	older := save(t, s, ann, "a", ckpt.KindRoutine, `{"n":2}`)
	save(t, s, ann, "a", ckpt.KindRoutine, `{"n":3}`)
	says(t, look(t, s), "the newest, clean and intact")
	_, _, err := s.Restore(t.Context(), ann, ckpt.RestoreRequest{Agent: "a", Checkpoint: older.ID, Reason: "3 was wrong"})
	must(t, err)
	plan := look(t, s)
	says(t, plan, "which was restored", "One checkpoint that was saved later, before that restore, is left behind", "not the newest")
	for _, run := range []string{"", "main"} {
		latest, err := s.Latest(t.Context(), ann, ckpt.CheckpointFilter{Agent: "a", Run: run}, true)
		must(t, err)
		if latest.ID != plan.Checkpoint.ID || latest.ID != older.ID {
			t.Errorf("the latest of %q is number %d, the plan loads %d", run, latest.Seq, plan.Checkpoint.Seq)
		}
	}
	next := save(t, s, ann, "a", ckpt.KindRoutine, `{"n":4}`)
	if latest, err := s.Latest(t.Context(), ann, ckpt.CheckpointFilter{Agent: "a"}, false); err != nil || latest.ID != next.ID {
		t.Errorf("after the next save: %+v, %v", latest, err)
	}
	says(t, look(t, s), "the newest, clean and intact", "not left behind")
	if _, err := s.Delete(t.Context(), ann, next.ID); err != nil {
		t.Fatal(err)
	}
	plan = look(t, s)
	says(t, plan, "which was restored")
	if plan.Checkpoint.ID != older.ID {
		t.Errorf("after the removal of the next save, the plan loads %d", plan.Checkpoint.Seq)
	}
}

// TestReinitializationLosesAll: the prompt to the operator lists everything
// that is lost, and the plan after the answer does not say that the owner
// stopped the run.
func TestReinitializationLosesAll(t *testing.T) {
	t.Parallel()
	s, c, p := openRuns(t)
	policy := ckpt.DefaultPolicy()
	policy.Autoresume = false
	_, err := s.SetPolicy(t.Context(), ann, "a", policy)
	must(t, err)
	start(t, s, 7)
	save(t, s, ann, "a", ckpt.KindRoutine, `{"n":1}`)
	save(t, s, ann, "a", ckpt.KindRoutine, `{"n":3,"plan":["a"]}`)
	p.kill(7)
	plan := claim(t, s, 8)
	wantVerdict(t, plan, ckpt.VerdictAsk)
	want := `[{"op":"remove","path":"/n"},{"op":"remove","path":"/plan"}]`
	if got := string(plan.Prompt.MemoryDiff); got != want {
		t.Errorf("the prompt says that %s is lost", got)
	}
	c.add(time.Second)
	_, _, err = s.AnswerPrompt(t.Context(), ann, ckpt.PromptAnswer{ID: plan.Prompt.ID, Choice: ckpt.ChoiceReinitialize})
	must(t, err)
	plan = look(t, s)
	wantVerdict(t, plan, ckpt.VerdictFresh)
	says(t, plan, "was re-initialized", "not stopped by its owner")
	claim(t, s, 9)
	save(t, s, ann, "a", ckpt.KindRoutine, `{"n":1}`)
	p.kill(9)
	says(t, look(t, s), "not re-initialized", "process 9")
}

// TestAFrozenOwnerIsNotSafe: the frozen process still exists, and can continue
// its work on the outside world at any time.
func TestAFrozenOwnerIsNotSafe(t *testing.T) {
	t.Parallel()
	s, c, p := openRuns(t)
	beat := ckpt.Duration(30 * time.Second)
	_, _, err := s.StartRun(t.Context(), as(7), ckpt.RunRequest{Agent: "a", PID: 7, HeartbeatTimeout: &beat})
	must(t, err)
	save(t, s, ann, "a", ckpt.KindRoutine, `{"n":1}`)
	c.add(time.Hour)
	watched, err := s.Watched(t.Context(), 0, 10)
	must(t, err)
	if did, err := s.Interrupt(t.Context(), watched[0], ckpt.RunTimedOut, "late"); err != nil || !did {
		t.Fatal(did, err)
	}
	plan := look(t, s)
	wantVerdict(t, plan, ckpt.VerdictRepair)
	says(t, plan, "still exists", "Continue only after that process is stopped", "not safe to continue")
	p.kill(7)
	plan = look(t, s)
	wantVerdict(t, plan, ckpt.VerdictResume)
	says(t, plan, "It is safe to continue", "not still exists")
}

// TestDriftRestoresNothing: the recovery checkpoint that critical drift makes
// does not mean that the run went back. The plan skips it, and continues from
// it after the finding was dismissed.
func TestDriftRestoresNothing(t *testing.T) {
	t.Parallel()
	s, _, p := openRuns(t)
	start(t, s, 7)
	save(t, s, ann, "a", ckpt.KindRoutine, `{"n":1}`)
	since := int64(1)
	found, _, err := s.PostFinding(t.Context(), ann, "a", ckpt.FindingRequest{Rule: "own", Severity: ckpt.SeverityCritical, Message: "It went wrong.", SinceSeq: &since})
	must(t, err)
	p.kill(7)
	plan := look(t, s)
	wantVerdict(t, plan, ckpt.VerdictRepair)
	says(t, plan, "Critical drift was found", "saved after the first evidence", "not restored")
	_, _, err = s.Dismiss(t.Context(), ann, ckpt.DismissRequest{ID: found.ID, Reason: "it was none"})
	must(t, err)
	plan = look(t, s)
	wantVerdict(t, plan, ckpt.VerdictResume)
	says(t, plan, "the newest, clean and intact", "not restored", "not drift")
}
