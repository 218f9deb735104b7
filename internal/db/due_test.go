package db_test

import (
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestDueIsForRoutineCheckpointsAndAges: a long history of young recovery
// checkpoints is not checked again in every round.
func TestDueIsForRoutineCheckpointsAndAges(t *testing.T) {
	t.Parallel()
	s, clock := open(t)
	for range 10 {
		save(t, s, ann, "a", ckpt.KindRecovery, "1")
	}
	for range 5 {
		save(t, s, ann, "b", ckpt.KindRoutine, "1")
	}
	save(t, s, ann, "b", ckpt.KindRecovery, "1")
	due, err := s.Due(t.Context(), clock.Now(), 0, 100)
	must(t, err)
	if len(due) != 0 {
		t.Errorf("due are %v", due)
	}
	clock.add(8 * ckpt.Day)
	due, err = s.Due(t.Context(), clock.Now(), 0, 100)
	must(t, err)
	if len(due) != 2 {
		t.Errorf("after 8 days due are %v", due)
	}
}
