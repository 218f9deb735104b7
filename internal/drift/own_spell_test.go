package drift

import (
	"encoding/json"
	"testing"
	"time"

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

// TestCooldownsOfOwnRulesOutliveARestart: a restart after each save, or a dismissal before it, does not report a rule of
// the user or the schema again before its cooldown is over. Another expression under the same name is reported.
func TestCooldownsOfOwnRulesOutliveARestart(t *testing.T) {
	for _, name := range []string{"mine", RuleSchema} {
		for _, dismissed := range []bool{false, true} {
			p := ckpt.DefaultPolicy()
			ruled("state.n > 3")(&p)
			past := observer.RunPast{StartedAt: resumedAt, Dismissed: map[string]time.Time{}}
			var at []int
			for i := range 19 {
				w := New().Watch(&p, past)
				s := observer.StatePrint{Seq: int64(i + 1), At: resumedAt.Add(time.Duration(i+1) * time.Second), Kind: ckpt.KindRoutine}
				past.States = append(past.States, s)
				s.Broken = []observer.Found{{Rule: name, Severity: ckpt.SeverityCritical, Evidence: ckpt.Evidence{Threshold: "state.n > 3", Observed: "true"}}}
				for _, f := range w.State(s) {
					at = append(at, i)
					if dismissed {
						past.Dismissed[f.Rule] = s.At.Add(time.Millisecond)
						continue
					}
					evidence, _ := json.Marshal(f.Evidence)
					past.Open = append(past.Open, ckpt.Finding{Rule: f.Rule, Severity: f.Severity, At: ckpt.Time{Time: s.At}, Evidence: evidence})
				}
			}
			if len(at) != 1 {
				t.Errorf("%s, dismissed %v: it was reported at %v", name, dismissed, at)
			}
			if name != "mine" || dismissed {
				continue
			}
			ruled("state.m > 3")(&p)
			s := observer.StatePrint{Seq: 20, At: resumedAt.Add(time.Hour), Broken: []observer.Found{{Rule: name, Severity: ckpt.SeverityCritical}}}
			if n := len(New().Watch(&p, past).State(s)); n != 1 {
				t.Errorf("the rule that was changed was reported %d times", n)
			}
		}
	}
}
