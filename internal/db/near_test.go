package db_test

import (
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestAWrongNameIsToldWhatThereIs: a wrong name of an agent is answered with the nearest one of the owner, and a wrong key with the
// operations that wait for an end.
func TestAWrongNameIsToldWhatThereIs(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	save(t, s, ann, "coder", ckpt.KindRoutine, `1`)
	save(t, s, bob, "code", ckpt.KindRoutine, `1`)
	for name, want := range map[string]string{"codr": "did you mean coder?", "Coder": "did you mean coder?", "planner": "there is no agent planner: ", "x": "there is no agent x: "} {
		_, err := s.Checkpoints(t.Context(), ann, ckpt.CheckpointFilter{Agent: name})
		if wantCode(t, err, ckpt.CodeNotFound); !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ref := ckpt.RunRef{Agent: "coder"}
	resolve := func() string {
		_, _, err := s.ResolveOperation(t.Context(), ann, ref, ckpt.OperationResolution{Key: "pai", Choice: "it_did"})
		wantCode(t, err, ckpt.CodeNotFound)
		return err.Error()
	}
	if said := resolve(); !strings.Contains(said, "none that waits for an end") {
		t.Error(said)
	}
	_, _, err := s.BeginOperation(t.Context(), ann, ref, ckpt.OperationRequest{Key: "pay", Name: "pay", State: []byte(`{}`)})
	must(t, err)
	if said := resolve(); !strings.Contains(said, "the operations that wait for an end are pay") {
		t.Error(said)
	}
}
