package foreign

import (
	"strings"
	"testing"
	"testing/fstest"
)

// TestAHollowLoopIsRefused: a state that says nothing but its name and status is no state to go on from.
func TestAHollowLoopIsRefused(t *testing.T) {
	dir := fstest.MapFS{".running/l.state.json": {Data: []byte(`{"loop_name":"l","status":"running"}`)}}
	loops, _ := FindLoops(dir)
	if len(loops) != 1 {
		t.Fatalf("%v", loops)
	}
	r := ReadLoop(dir, loops[0], options)
	if len(r.Plans) != 0 || len(r.Problems) != 1 || !r.Problems[0].Refused || !strings.Contains(r.Problems[0].Message, "loop_name and status alone") {
		t.Fatalf("%+v", r)
	}
}
