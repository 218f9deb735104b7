package drift

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
)

func TestARestartInAStreakGoesOnCounting(t *testing.T) {
	m := newMade(t)
	for i := range 5 {
		m.step("search", 1, "same", "")
		if i == 1 || i == 3 {
			m.restart()
		}
	}
	m.expect(RuleRepeat, ckpt.SeverityWarn, 3)
	m.expect(RuleRepeat, ckpt.SeverityCritical, 4)
	if len(m.found) != 2 {
		t.Errorf("restarts made more findings: %s", m.all())
	}
}

// TestRestartsChangeNothing: for random behavior of an agent and restarts of
// the daemon at random times, the findings are the same as without restarts.
func TestRestartsChangeNothing(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 7))
		without, with := newMade(t, somePolicy(seed)), newMade(t, somePolicy(seed))
		for i := range 120 {
			event := random.IntN(20)
			tool, args, result, failure := "t"+strconv.Itoa(random.IntN(3)), random.IntN(3), random.IntN(3), ""
			if random.IntN(3) == 0 {
				failure = "error " + string(rune('a'+random.IntN(3)))
			}
			took, progress := int64(100+random.IntN(20)+i), float64(random.IntN(40)+i)
			restart := random.IntN(8) == 0
			for _, m := range []*made{without, with} {
				switch event {
				case 0, 1:
					m.save(map[string]any{"n": args, "key" + strconv.Itoa(result): tool})
				default:
					m.step(tool, args, fmt.Sprint(result), failure, func(s *ckpt.Step) {
						s.DurationMS = &took
						if seed%2 == 0 { // some calls of one turn
							s.Turn = ckpt.Ref("turn " + strconv.Itoa(i/(1+int(seed%5))))
						}
						if event == 2 {
							s.Progress = &progress
						}
					})
				}
			}
			if restart {
				with.restart()
			}
		}
		if !reflect.DeepEqual(without.found, with.found) {
			t.Fatalf("seed %d: without restarts %s\nwith them %s", seed, without.all(), with.all())
		}
	}
}

func somePolicy(seed uint64) func(*ckpt.Policy) {
	return func(p *ckpt.Policy) {
		p.Sensitivity = []ckpt.Sensitivity{ckpt.SensitivityLow, ckpt.SensitivityNormal, ckpt.SensitivityHigh}[seed%3]
		if seed%2 == 0 {
			p.IgnoreTools = []string{"t2"}
		}
	}
}

func TestARestartRemembersWhatWasToldAndDismissed(t *testing.T) {
	policy := ckpt.DefaultPolicy()
	policy.Budget = ckpt.Budget{Steps: 100}
	w := New()
	past := observer.RunPast{StartedAt: start, TotalSteps: 95, Goal: "count sheep"}
	step := observer.StepPrint{Tool: "t", At: start.Add(time.Minute)}

	found := w.Watch(&policy, past).Step(step)
	if len(found) != 1 || found[0].Rule != RuleBudget || found[0].Severity != ckpt.SeverityWarn {
		t.Fatalf("after 96 of 100 steps: %+v", found)
	}
	past.Open = []ckpt.Finding{{Rule: RuleBudget, Severity: ckpt.SeverityWarn, Evidence: asJSON(t, found[0].Evidence)}}
	if found = w.Watch(&policy, past).Step(step); len(found) != 0 {
		t.Errorf("what was told before is told again: %+v", found)
	}
	past.Open, past.Dismissed = nil, map[string]time.Time{RuleBudget: start}
	if found = w.Watch(&policy, past).Step(step); len(found) != 0 {
		t.Errorf("what was dismissed is told again: %+v", found)
	}
	past.TotalSteps = 99
	if found = w.Watch(&policy, past).Step(step); len(found) != 1 || found[0].Severity != ckpt.SeverityCritical {
		t.Errorf("at 100 of 100 steps: %+v", found)
	}
}

func TestARestartKnowsTheGoalAndTheProgress(t *testing.T) {
	policy := ckpt.DefaultPolicy()
	policy.NoProgressSteps = 5
	progress := 0.5
	past := observer.RunPast{StartedAt: start, Goal: "count sheep", Progress: &progress, ProgressAt: start.Add(10 * time.Second)}
	for i := range 4 {
		past.Steps = append(past.Steps, observer.StepPrint{Tool: "t", Sig: strconv.Itoa(i), At: start.Add(time.Duration(9+i) * time.Second)})
	}
	past.TotalSteps = 4 // two of them after the progress grew
	r := New().Watch(&policy, past)
	found := r.Goal(start, "count wolves", false)
	if len(found) != 1 || found[0].Rule != RuleGoalChanged {
		t.Errorf("another goal than before the restart: %+v", found)
	}
	for i := range 3 {
		found = r.Step(observer.StepPrint{Tool: "t", Sig: "x" + strconv.Itoa(i), At: start.Add(time.Minute)})
		if (len(found) == 1) != (i == 2) {
			t.Errorf("step %d after the restart: %+v", i, found)
		}
	}
	past.Open = []ckpt.Finding{{Rule: RuleGoalChanged, Severity: ckpt.SeverityWarn, Evidence: asJSON(t, ckpt.Evidence{Threshold: "count sheep", Observed: "count wolves"})}}
	if found := New().Watch(&policy, past).Goal(start, "count wolves", false); len(found) != 0 {
		t.Errorf("the same other goal is told again: %+v", found)
	}
}
