package db_test

import (
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestReasonsAreRecorded: the reason that an operator gives is in the audit row
// of what he did.
func TestReasonsAreRecorded(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	why := ann
	why.Reason = "because of ticket 7"
	first := save(t, s, ann, "a", ckpt.KindRecovery, `1`)
	second := save(t, s, ann, "a", ckpt.KindRoutine, `2`)
	pin := true
	_, err := s.Patch(t.Context(), why, second.ID, ckpt.CheckpointPatch{Pinned: &pin})
	must(t, err)
	_, err = s.Delete(t.Context(), why, first.ID)
	must(t, err)
	_, err = s.SetOwnPolicy(t.Context(), why, "a", []byte(`{"routine_keep":1}`))
	must(t, err)
	_, _, err = s.Prune(t.Context(), why, ckpt.PruneRequest{}, "")
	must(t, err)
	_, _, err = s.StartRun(t.Context(), why, ckpt.RunRequest{Agent: "a", Run: "fork", ForkFrom: ckpt.Ref(second.ID)})
	must(t, err)
	for _, action := range []string{"change", "delete", "set_policy", "prune", "start_run"} {
		if got := sqlite3(t, pathOf(s), `SELECT count(*) FROM audit_log WHERE action = '`+action+`' AND reason = 'because of ticket 7' AND outcome = 'done'`); got != "1" {
			t.Errorf("%s rows of %s have the reason", got, action)
		}
	}
	sound(t, pathOf(s))
}

// TestAPolicyIsReplacedByWhoHasReadIt: if two operators read the same policy
// and both replace it, the second one is told that it has changed.
func TestAPolicyIsReplacedByWhoHasReadIt(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	_, err := s.SetOwnPolicy(t.Context(), ann, "a", []byte(`{"routine_keep":1}`))
	must(t, err)
	tag, err := s.PolicyTag(t.Context(), ann, "a")
	must(t, err)
	_, err = s.SetOwnPolicy(t.Context(), ann, "a", []byte(`{"routine_keep":2}`), tag)
	must(t, err)
	_, err = s.SetOwnPolicy(t.Context(), ann, "a", []byte(`{"routine_keep":3}`), tag)
	wantCode(t, err, ckpt.CodeConflict)
	p, err := s.Policy(t.Context(), ann, "a")
	must(t, err)
	if p.RoutineKeep != 2 {
		t.Errorf("routine_keep is %d: the first one's is gone", p.RoutineKeep)
	}
	if got := sqlite3(t, pathOf(s), `SELECT count(*) FROM audit_log WHERE action = 'set_policy' AND outcome = 'conflict'`); got != "1" {
		t.Errorf("%s rows say that one was refused", got)
	}
}
