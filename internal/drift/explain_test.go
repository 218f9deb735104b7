package drift

import (
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
)

// TestExplainedLevelsAreOfTheirStep: the explanation of a step has the levels
// of that step. A successful step with something new is close to no threshold,
// whatever failed before it.
func TestExplainedLevelsAreOfTheirStep(t *testing.T) {
	failed := ckpt.Step{Name: "bash", Args: ckpt.JSON(`"make"`), Result: ckpt.JSON(`"no rule"`), Status: ckpt.StepFailed}
	fine := ckpt.Step{Name: "bash", Args: ckpt.JSON(`"ls"`), Result: ckpt.JSON(`"main.c"`), Status: ckpt.StepSucceeded}
	e, policy := New().Evaluator(), ckpt.DefaultPolicy()
	e.Judge(&policy, &observer.RecordedRun{ID: "r", StartedAt: start, Raw: []ckpt.Step{failed, failed, fine, failed}}, true)
	steps := e.Result().Explained
	if len(steps) != 4 || steps[1].Levels[RuleErrorStreak] == 0 || len(steps[2].Levels) != 0 || steps[3].Levels[RuleErrorStreak] == 0 {
		t.Errorf("%+v", steps)
	}
}
