package host

import (
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// TestKnownSegments: a run counts as a run without segments in the engine only after a batch that has removed all
// of them.
func TestKnownSegments(t *testing.T) {
	t.Parallel()
	k := known{}
	for _, step := range []struct {
		what string
		run  fleet.Run
		has  bool // whether the engine has segment 7
		none bool
	}{
		{"nothing is known of what was shipped before", fleet.Run{}, false, false},
		{"a segment came", fleet.Run{Pieces: []fleet.Segment{{ID: 7}}}, true, false},
		{"nothing changed of the segments", fleet.Run{}, true, false},
		{"it is still there", fleet.Run{Trim: true, Segments: []int64{7, 8}}, true, false},
		{"another one is there that nobody knows of", fleet.Run{Trim: true, Segments: []int64{8}}, false, false},
		{"all went", fleet.Run{Trim: true}, false, true},
		{"nothing came", fleet.Run{}, false, true},
		{"it came again", fleet.Run{Pieces: []fleet.Segment{{ID: 7}}}, true, false},
		{"it came with the batch that has taken the others", fleet.Run{Pieces: []fleet.Segment{{ID: 7}}, Trim: true, Segments: []int64{7}}, true, false},
	} {
		step.run.UID = "run"
		k.note(&fleet.Changes{Runs: []fleet.Run{step.run}})
		if has, none := k.Has("run", 7), k.HasNone("run"); has != step.has || none != step.none {
			t.Errorf("%s: the engine has segment 7: %v, and none at all: %v; want %v and %v", step.what, has, none, step.has, step.none)
		}
	}
	if k.HasNone("another") {
		t.Error("of a run that was never shipped it is known that the engine has no segment of it")
	}
}
