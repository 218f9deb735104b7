package db_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

func pin(t *testing.T, on bool) ckpt.CheckpointPatch { return ckpt.CheckpointPatch{Pinned: &on} }

// TestPatch changes labels and pin, each alone and both, and nothing else.
func TestPatch(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	c := save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	want := c.Checkpoint
	for _, p := range []ckpt.CheckpointPatch{
		{Labels: &ckpt.Labels{"x": "1"}}, pin(t, true), {Labels: &ckpt.Labels{"y": "2"}, Pinned: new(bool)}, {Labels: &ckpt.Labels{}},
	} {
		if p.Labels != nil {
			want.Labels = *p.Labels
			if len(want.Labels) == 0 {
				want.Labels = nil
			}
		}
		if p.Pinned != nil {
			want.Pinned = *p.Pinned
		}
		answer, err := s.Patch(t.Context(), ann, c.ID, p)
		must(t, err)
		read, err := s.Checkpoint(t.Context(), ann, c.ID, false)
		must(t, err)
		for _, got := range []*ckpt.Checkpoint{answer, read} {
			if diff := cmp.Diff(want, *got); diff != "" {
				t.Errorf("after %+v:\n%s", p, diff)
			}
		}
	}
	for name, err := range map[string]error{
		"nothing": func() error { _, err := s.Patch(t.Context(), ann, c.ID, ckpt.CheckpointPatch{}); return err }(),
		"id":      func() error { _, err := s.Patch(t.Context(), ann, "x", pin(t, true)); return err }(),
		"label": func() error {
			_, err := s.Patch(t.Context(), ann, c.ID, ckpt.CheckpointPatch{Labels: &ckpt.Labels{"": ""}})
			return err
		}(),
	} {
		if ckpt.CodeOf(err) != ckpt.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestUnpinAppliesThePolicy: a checkpoint that only the pin kept is removed
// when the pin is removed.
func TestUnpinAppliesThePolicy(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	c := save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	_, err := s.Patch(t.Context(), ann, c.ID, pin(t, true))
	must(t, err)
	for range 4 {
		save(t, s, ann, "a", ckpt.KindRoutine, `2`)
	}
	if _, err := s.Checkpoint(t.Context(), ann, c.ID, true); err != nil {
		t.Fatalf("the pinned one: %v", err)
	}
	_, err = s.Delete(t.Context(), ann, c.ID)
	wantCode(t, err, ckpt.CodeConflict)
	_, err = s.Patch(t.Context(), ann, c.ID, pin(t, false))
	must(t, err)
	_, err = s.Checkpoint(t.Context(), ann, c.ID, true)
	wantCode(t, err, ckpt.CodeNotFound)
}

// TestUnpinByAnAdministrator: a removal that follows from an administrator's
// unpin is recorded under the checkpoint's owner and agent.
func TestUnpinByAnAdministrator(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	c := save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	_, err := s.Patch(t.Context(), ann, c.ID, pin(t, true))
	must(t, err)
	for range 4 {
		save(t, s, ann, "a", ckpt.KindRoutine, `2`)
	}
	_, err = s.Patch(t.Context(), root, c.ID, pin(t, false))
	must(t, err)
	page, err := s.Audit(t.Context(), root, ckpt.AuditFilter{Action: "remove"})
	must(t, err)
	row := page.Audit[len(page.Audit)-1]
	if string(row.Subject) != c.ID || row.Who != root.Caller.Owner || string(row.Owner) != ann.Caller.Owner || row.Agent != "a" {
		t.Errorf("the removal is recorded as %+v", row)
	}
}

// TestDelete deletes a checkpoint once. The head of the run goes back to a
// remaining checkpoint.
func TestDelete(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	first, second := save(t, s, ann, "a", ckpt.KindRecovery, `1`), save(t, s, ann, "a", ckpt.KindRecovery, `2`)
	gone, err := s.Delete(t.Context(), ann, second.ID)
	must(t, err)
	if gone.Checkpoint != second.ID || gone.Reason != "deleted by uid:1001" || gone.Seq != 2 {
		t.Errorf("%+v", gone)
	}
	_, err = s.Delete(t.Context(), ann, second.ID)
	wantCode(t, err, ckpt.CodeNotFound)
	_, err = s.Delete(t.Context(), ann, "x")
	wantCode(t, err, ckpt.CodeInvalid)
	third := save(t, s, ann, "a", ckpt.KindRecovery, `3`)
	if string(third.Parent) != first.ID || third.Seq != 3 {
		t.Errorf("the next save: seq %d, parent %s", third.Seq, third.Parent)
	}
	for _, c := range []*ckpt.Saved{third, first} {
		_, err = s.Delete(t.Context(), ann, c.ID)
		must(t, err)
	}
	if c := save(t, s, ann, "a", ckpt.KindRecovery, `4`); c.Seq != 4 || c.Parent != "" {
		t.Errorf("after all were deleted: %+v", c)
	}
}

// TestPolicy: a policy is stored whole, appears in the view, is merged over the
// defaults when read, and applies at once to every run.
func TestPolicy(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	for _, run := range []string{"main", "r2"} {
		for range 3 {
			_, err := s.Save(t.Context(), ann, inRun(run, ckpt.KindRoutine, `1`))
			must(t, err)
		}
	}
	p, err := s.Policy(t.Context(), ann, "a")
	must(t, err)
	if diff := cmp.Diff(ckpt.DefaultPolicy(), *p); diff != "" {
		t.Errorf("the policy of a new agent:\n%s", diff)
	}
	want := ckpt.DefaultPolicy()
	want.RoutineKeep, want.RecoveryKeep = 1, ckpt.Duration(time.Hour)
	_, err = s.SetPolicy(t.Context(), ann, "a", want)
	must(t, err)
	if p, err = s.Policy(t.Context(), ann, "a"); err != nil || cmp.Diff(want, *p) != "" {
		t.Errorf("read back: %+v, %v", p, err)
	}
	if got := seqs(t, s, ann, "a"); len(got) != 2 {
		t.Errorf("the policy was not applied: %v", got)
	}
	want.RoutineKeep = -1
	_, err = s.SetPolicy(t.Context(), ann, "a", want)
	wantCode(t, err, ckpt.CodeInvalid)
	_, err = s.SetPolicy(t.Context(), ann, "/", ckpt.DefaultPolicy())
	wantCode(t, err, ckpt.CodeInvalid)
	_, err = s.SetPolicy(t.Context(), ann, "fresh", ckpt.DefaultPolicy())
	must(t, err)
	_, err = s.Policy(t.Context(), ann, "fresh")
	must(t, err)
}
