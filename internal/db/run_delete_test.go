package db_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
)

// TestDeleteRun removes a whole run, and refuses while it is needed.
func TestDeleteRun(t *testing.T) {
	t.Parallel()
	s, _, p := openRuns(t)
	policy := ckpt.DefaultPolicy()
	policy.RoutineKeep = 0
	_, err := s.SetPolicy(t.Context(), ann, "a", policy)
	must(t, err)
	start(t, s, 7)
	for i := range 1003 { // more than fits into one transaction
		save(t, s, ann, "a", ckpt.KindRoutine, fmt.Sprint(i))
	}
	save(t, s, ann, "b", ckpt.KindRoutine, `1`)
	_, err = s.DeleteRun(t.Context(), ann, mainRun, false)
	wantCode(t, err, ckpt.CodeConflict) // its owner is alive
	_, err = s.DeleteRun(t.Context(), ann, mainRun, true)
	wantCode(t, err, ckpt.CodeDenied)
	_, _, err = s.BeginOperation(t.Context(), as(7), mainRun, ckpt.OperationRequest{Key: "pay", Name: "pay"})
	must(t, err)
	p.kill(7)
	_, err = s.DeleteRun(t.Context(), ann, mainRun, false)
	wantCode(t, err, ckpt.CodeUncertainOperation)
	_, err = s.DeleteRun(t.Context(), bob, mainRun, false)
	wantCode(t, err, ckpt.CodeNotFound)
	_, _, err = s.EndOperation(t.Context(), as(7), mainRun, ckpt.OperationEnd{Key: "pay", Status: ckpt.OperationSucceeded})
	must(t, err)
	page, err := s.Checkpoints(t.Context(), ann, ckpt.CheckpointFilter{Agent: "a", Limit: 1})
	must(t, err)
	id := page.Checkpoints[0].ID
	_, err = s.Patch(t.Context(), ann, id, pin(t, true))
	must(t, err)
	_, err = s.DeleteRun(t.Context(), ann, mainRun, false)
	wantCode(t, err, ckpt.CodeConflict) // pinned
	cleared, err := s.ClearRun(t.Context(), ann, mainRun)
	must(t, err)
	if cleared.Kept != 1 || cleared.Removed < 1000 {
		t.Errorf("%+v", cleared)
	}
	_, err = s.Patch(t.Context(), ann, id, pin(t, false))
	must(t, err)
	deleted, err := s.DeleteRun(t.Context(), ann, mainRun, false)
	must(t, err)
	if deleted.Checkpoints != 1 || deleted.Rows < 1 {
		t.Errorf("%+v", deleted)
	}
	_, err = s.Run(t.Context(), ann, mainRun)
	wantCode(t, err, ckpt.CodeNotFound)
	if next := save(t, s, ann, "a", ckpt.KindRoutine, `"anew"`); next.Seq != 1 || next.Parent != "" {
		t.Errorf("the next save: %+v", next)
	}
	sound(t, pathOf(s))
}

// TestAForcedDeletionNamesWhatNobodyKnows: without force, a run with an open or an uncertain operation stays. With force, the
// answer and the row of the audit log name each of its attempts.
func TestAForcedDeletionNamesWhatNobodyKnows(t *testing.T) {
	t.Parallel()
	s, _, p := openRuns(t)
	start(t, s, 7)
	for _, key := range []string{"pay", "send", "done"} {
		_, _, err := s.BeginOperation(t.Context(), as(7), mainRun, ckpt.OperationRequest{Key: key, Name: key + " it"})
		must(t, err)
	}
	_, _, err := s.EndOperation(t.Context(), as(7), mainRun, ckpt.OperationEnd{Key: "pay", Status: ckpt.OperationUncertain})
	must(t, err)
	_, _, err = s.EndOperation(t.Context(), as(7), mainRun, ckpt.OperationEnd{Key: "done", Status: ckpt.OperationSucceeded})
	must(t, err)
	p.kill(7)
	by := root
	by.Target = ann.Caller.Owner
	for _, who := range []ckpt.Scope{ann, by} {
		_, err = s.DeleteRun(t.Context(), who, mainRun, false)
		wantCode(t, err, ckpt.CodeUncertainOperation)
	}
	deleted, err := s.DeleteRun(t.Context(), by, mainRun, true)
	must(t, err)
	want := []ckpt.RemovedOperation{
		{Key: "pay", Name: "pay it", Attempt: 1, Status: ckpt.OperationUncertain}, {Key: "send", Name: "send it", Attempt: 1, Status: ckpt.OperationOpen},
	}
	if !slices.Equal(deleted.Uncertain, want) {
		t.Errorf("the answer names %+v", deleted.Uncertain)
	}
	got := sqlite3(t, pathOf(s), `SELECT group_concat((value ->> 'key') || ' ' || (value ->> 'status') || ' ' || (value ->> 'attempt'), ', ')
		FROM audit_log, json_each(detail -> 'uncertain_operations') WHERE action = 'delete_run' AND outcome = 'done'`)
	if got != "pay uncertain 1, send open 1" {
		t.Errorf("the audit log names %q", got)
	}
}

// TestAnotherOwnersForkKeepsNoRun: another owner can have checkpoints with the same ids, from the
// same export. A fork from one of those neither keeps the run of the first owner nor is named to the
// first owner.
func TestAnotherOwnersForkKeepsNoRun(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	from := save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	_, err := s.Import(t.Context(), bob, ckpt.ImportRequest{}, strings.NewReader(exportOf(t, s, "a")))
	must(t, err)
	_, _, err = s.StartRun(t.Context(), bob, ckpt.RunRequest{Agent: "a", Run: "bobs-fork", ForkFrom: ckpt.Ref(from.ID)})
	must(t, err)
	_, err = s.DeleteRun(t.Context(), bob, mainRun, false)
	wantCode(t, err, ckpt.CodeConflict) // his own is kept
	if _, err := s.DeleteRun(t.Context(), ann, mainRun, false); err != nil {
		t.Errorf("the other owner's run: %v", err)
	}
}

// TestTheHeadStaysAfterTheBeginning: when the head is removed, the run does not go back to what it
// had saved before it was begun anew.
func TestTheHeadStaysAfterTheBeginning(t *testing.T) {
	t.Parallel()
	removals := map[string]func(s *db.Store, before, after string) error{
		"delete": func(s *db.Store, before, after string) error { _, err := s.Delete(t.Context(), ann, after); return err },
		"clear": func(s *db.Store, before, after string) error {
			pinned := true
			if _, err := s.Patch(t.Context(), ann, before, ckpt.CheckpointPatch{Pinned: &pinned}); err != nil {
				return err
			}
			_, err := s.ClearRun(t.Context(), ann, mainRun)
			return err
		},
	}
	for name, remove := range removals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _, _ := openRuns(t)
			before := save(t, s, ann, "a", ckpt.KindRoutine, `"before"`)
			_, _, err := s.EndRun(t.Context(), ann, mainRun, ckpt.EndRequest{Status: ckpt.RunCompleted})
			must(t, err)
			start(t, s, 11)
			saved := save(t, s, as(11), "a", ckpt.KindRoutine, `"after"`)
			must(t, remove(s, before.ID, saved.ID))
			o, _, err := s.BeginOperation(t.Context(), as(11), mainRun, ckpt.OperationRequest{Key: "k", Name: "n"})
			must(t, err)
			if o.Checkpoint != "" {
				t.Errorf("the operation begins with the state of %s, want none (before is %s)", o.Checkpoint, before.ID)
			}
		})
	}
}

// TestTheHeadStaysBeforeWhatWasGivenUp: when the checkpoint is removed that a run went back to, the
// run does not go on from what it gave up then.
func TestTheHeadStaysBeforeWhatWasGivenUp(t *testing.T) {
	t.Parallel()
	s, _, _ := openRuns(t)
	start(t, s, 11)
	first := save(t, s, as(11), "a", ckpt.KindRoutine, `1`)
	second := save(t, s, as(11), "a", ckpt.KindRoutine, `2`)
	save(t, s, as(11), "a", ckpt.KindRoutine, `3`)
	_, _, err := s.Restore(t.Context(), ann, ckpt.RestoreRequest{Agent: "a", Checkpoint: second.ID})
	must(t, err)
	_, err = s.Delete(t.Context(), ann, second.ID)
	must(t, err)
	o, _, err := s.BeginOperation(t.Context(), as(11), mainRun, ckpt.OperationRequest{Key: "k", Name: "n"})
	must(t, err)
	c, err := s.Checkpoint(t.Context(), ann, string(o.Checkpoint), true)
	must(t, err)
	if string(c.State) != `1` || string(c.Parent) != first.ID {
		t.Errorf("the operation begins with the state %s after %s, want 1 after %s", c.State, c.Parent, first.ID)
	}
}
