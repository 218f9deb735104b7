package drift

import (
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
)

// TestARuleOfStepsAndStatesHasOneSpell: a rule that names neither a step nor a state is tried at both. If it holds all
// the time, it is reported at growing intervals, as any other.
func TestARuleOfStepsAndStatesHasOneSpell(t *testing.T) {
	p := ckpt.DefaultPolicy()
	ruled("run.steps > 50")(&p)
	r := newRun(&p, observer.RunPast{StartedAt: resumedAt})
	broken := []observer.Found{{Rule: "mine", Severity: ckpt.SeverityCritical}}
	reported := 0
	for i := range 200 {
		s := observer.StepPrint{Tool: "t", Sig: observer.UnknownCall, At: resumedAt}
		if i >= 50 {
			s.Broken = broken
		}
		reported += len(r.Step(s))
		if i%5 == 4 {
			reported += len(r.State(observer.StatePrint{Seq: int64(i), Broken: s.Broken, Kind: ckpt.KindRoutine}))
		}
	}
	if reported < 2 || reported > 6 {
		t.Errorf("it was reported %d times", reported)
	}
}
