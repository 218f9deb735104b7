package drift

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
)

// past is what a daemon that starts again knows of a run: its steps, and the findings that are still open.
type past struct {
	observer.RunPast
	live observer.RunWatch
	p    *ckpt.Policy
}

func newPast(p *ckpt.Policy) *past {
	return &past{RunPast: observer.RunPast{StartedAt: resumedAt}, live: New().Watch(p, observer.RunPast{StartedAt: resumedAt}), p: p}
}

var resumedAt = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// step makes a new step with this progress, and returns the rules that reported something.
func (r *past) step(w observer.RunWatch, progress float64) (rules []string) {
	n := r.TotalSteps
	s := observer.StepPrint{Tool: "t", Sig: observer.UnknownCall, At: resumedAt.Add(time.Duration(n+1) * time.Second)}
	s.Began, s.Progress = s.At, &progress
	r.Steps, r.TotalSteps = append(r.Steps, s), n+1
	if r.Progress == nil || progress > *r.Progress {
		r.ProgressAt = s.At
	}
	r.Progress = &progress
	for _, f := range w.Step(s) {
		evidence, _ := json.Marshal(f.Evidence)
		r.Open = append(r.Open, ckpt.Finding{Rule: f.Rule, Severity: f.Severity, At: ckpt.Time{Time: s.At}, Evidence: evidence})
		rules = append(rules, f.Rule+" "+string(f.Severity))
	}
	return rules
}

func (r *past) steps(w observer.RunWatch, n int, progress float64) (rules []string) {
	for range n {
		rules = append(rules, r.step(w, progress)...)
	}
	return rules
}

// TestAStallAfterARestartIsReported: an open finding about a stall that is over does not keep the next stall silent.
func TestAStallAfterARestartIsReported(t *testing.T) {
	p := ckpt.DefaultPolicy()
	p.NoProgressSteps = 10
	detector(RuleBlindSteps, ckpt.Detector{Tier: ckpt.TierOff})(&p)
	r := newPast(&p)
	r.steps(r.live, 25, 0.1)
	r.step(r.live, 0.2)
	again := New().Watch(&p, r.RunPast)
	if back, ok := again.Back(); ok {
		t.Errorf("the stall is over, and the way back is still at %d", back)
	}
	if got := r.steps(again, 25, 0.2); len(got) != 2 || got[0] != "no_progress warn" || got[1] != "no_progress critical" {
		t.Errorf("the second stall: %q", got)
	}
}

// TestADismissedStallCountsOnAfterARestart: a restart does not begin to count again what was counted since the dismissal.
func TestADismissedStallCountsOnAfterARestart(t *testing.T) {
	p := ckpt.DefaultPolicy()
	p.NoProgressSteps = 10
	detector(RuleBlindSteps, ckpt.Detector{Tier: ckpt.TierOff})(&p)
	r := newPast(&p)
	r.steps(r.live, 11, 0.1)
	r.Open, r.Dismissed = nil, map[string]time.Time{RuleNoProgress: resumedAt.Add(11*time.Second + time.Millisecond)}
	r.live.Forget(RuleNoProgress)
	if got := r.steps(r.live, 8, 0.1); got != nil {
		t.Fatalf("before the restart: %q", got)
	}
	again := New().Watch(&p, r.RunPast)
	if got := r.steps(again, 3, 0.1); len(got) != 1 || got[0] != "no_progress warn" {
		t.Errorf("after the restart: %q", got)
	}
}

// TestARaisedLimitIsWatched: an open finding about the limit before says nothing about the new one.
func TestARaisedLimitIsWatched(t *testing.T) {
	p := ckpt.DefaultPolicy()
	p.NoProgressSteps, p.Budget.Steps = 10, 20
	r := newPast(&p)
	r.steps(r.live, 22, 0.1)
	p.NoProgressSteps, p.Budget.Steps = 30, 100
	again := New().Watch(&p, r.RunPast)
	got := map[string]int{}
	for _, rule := range r.steps(again, 80, 0.1) {
		got[rule]++
	}
	for _, rule := range []string{"no_progress warn", "no_progress critical", "budget info", "budget warn", "budget critical"} {
		if got[rule] != 1 {
			t.Errorf("%s was reported %d times", rule, got[rule])
		}
	}
	if found := r.steps(New().Watch(&p, r.RunPast), 3, 0.1); len(found) > 0 {
		t.Errorf("a restart reports the same limits again: %q", found)
	}
}

// TestABaselineCountsEachStepOnce: the first steps of an agent are in the baseline and among the steps that are
// replayed. A restart during the warm-up must not end it: the next calls, which take twice as long, belong to it.
func TestABaselineCountsEachStepOnce(t *testing.T) {
	p := ckpt.DefaultPolicy()
	p.Detectors = map[string]ckpt.Detector{RuleLatencyDrift: {Tier: ckpt.TierWarn}, RuleBlindSteps: {Tier: ckpt.TierOff}}
	for _, restarts := range []bool{false, true} {
		past := observer.RunPast{StartedAt: resumedAt}
		w := New().Watch(&p, past)
		for i := range 30 {
			ms := int64(100)
			if i >= 10 {
				ms = 200
			}
			s := observer.StepPrint{Key: fmt.Sprint(i), Tool: "t", Sig: observer.UnknownCall, At: resumedAt.Add(time.Duration(i+1) * time.Second)}
			s.DurationMS = &ms
			if restarts && i == 10 {
				past.Baseline = past.Steps
				w = New().Watch(&p, past)
			}
			if found := w.Step(s); len(found) > 0 {
				t.Errorf("restarts %v: step %d: %s", restarts, i, found[0].Message)
			}
			past.Steps, past.TotalSteps = append(past.Steps, s), past.TotalSteps+1
		}
	}
}

// TestAGoalAfterAnUpdateAndARestart: what was reported about the goal before a goal_update says nothing about the new one.
func TestAGoalAfterAnUpdateAndARestart(t *testing.T) {
	p := ckpt.DefaultPolicy()
	w := New().Watch(&p, observer.RunPast{StartedAt: resumedAt})
	w.Goal(resumedAt, "count sheep", false)
	found := w.Goal(resumedAt, "shear sheep", false)
	w.Goal(resumedAt, "count goats", true)
	if len(found) != 1 {
		t.Fatalf("%+v", found)
	}
	evidence, _ := json.Marshal(found[0].Evidence)
	open := []ckpt.Finding{{Rule: RuleGoalChanged, Severity: ckpt.SeverityWarn, At: ckpt.Time{Time: resumedAt}, Evidence: evidence}}
	again := New().Watch(&p, observer.RunPast{StartedAt: resumedAt, Goal: "count goats", Open: open})
	if live, restarted := len(w.Goal(resumedAt, "shear sheep", false)), len(again.Goal(resumedAt, "shear sheep", false)); live != 1 || restarted != 1 {
		t.Errorf("reported %d times, after a restart %d times", live, restarted)
	}
	again = New().Watch(&p, observer.RunPast{StartedAt: resumedAt, Goal: "count sheep", Open: open})
	if n := len(again.Goal(resumedAt, "shear sheep", false)); n != 0 {
		t.Errorf("the same goal was reported %d more times", n)
	}
}
