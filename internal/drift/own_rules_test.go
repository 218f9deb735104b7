package drift

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/meter/metertest"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/rule"
)

func ruled(when string) func(*ckpt.Policy) {
	return func(p *ckpt.Policy) {
		p.Rules = []ckpt.Rule{{Name: "mine", When: when, Severity: ckpt.SeverityCritical, Message: "it is too much"}}
	}
}

func TestBadRulesAreRefusedWithTheirPlace(t *testing.T) {
	for when, want := range map[string]string{
		"state.n >":                        "line 1, column 9",
		"state.n > 3 &&\n  stat.n > 3":     "line 2, column 3: stat is not known",
		"measures.error_streak > 3":        "measures has no error_streak",
		"step.durationms > 3":              "step has no durationms",
		"run.name == 'x'":                  "run has no name",
		"state.x matches state.y":          "the pattern of matches must be a text",
		"state.x matches '('":              "the pattern is wrong",
		"state.x matches '(a{500}){500}'":  "the pattern",
		"state.x matches '((a{90}){90})'":  "the pattern",
		"now() > 3":                        "the function now is not known",
		"env('HOME') == ''":                "the function",
		"toJSON(state) == ''":              "the function toJSON is not known",
		"reduce(state.l, #acc + #, 0) > 1": "the function reduce is not known",
		"1..1000000 == nil":                "the operator .. is not known",
		"{'a': 1} == state":                "not part of the language",
		"state.l[1:2] == nil":              "not part of the language",
		"$env.state == 1":                  "$env is not known",
		"# == 1":                           "",
		"len(state.a, state.b) == 1":       "",
		"":                                 "",
		strings.Repeat("(", 500) + "1" + strings.Repeat(")", 500) + strings.Repeat(" || state.a == 1", 400): "too large",
	} {
		p := ckpt.DefaultPolicy()
		p.Rules = []ckpt.Rule{{Name: "first", When: "true", Severity: ckpt.SeverityInfo}, {Name: "mine", When: when, Severity: ckpt.SeverityWarn}}
		err := New().Check(&p)
		if err == nil || ckpt.CodeOf(err) != ckpt.CodeInvalid || !strings.Contains(err.Error(), "rules[1].when of mine") || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v", when, err)
		}
	}
}

// hostileState is a state from which a rule can make very much work.
func hostileState() []byte {
	list := make([]any, 20_000)
	for i := range list {
		list[i] = map[string]any{"i": i, "same": strings.Repeat("x", 20)}
	}
	state, _ := json.Marshal(map[string]any{"l": list, "s": strings.Repeat("a", 500_000), "deep": nested(2000)})
	return state
}

func nested(depth int) any {
	var v any = 1.0
	for range depth {
		v = []any{v}
	}
	return v
}

// TestHostileRulesAreStopped: rules that are endless, too large or too deep are
// stopped, and named.
func TestHostileRulesAreStopped(t *testing.T) {
	state := hostileState()
	for name, when := range map[string]string{
		"endless":         "all(state.l, all(state.l, all(state.l, all(state.l, true))))",
		"endless map":     "len(map(state.l, map(state.l, state.l))) > 0",
		"large text":      "let a = state.s + state.s; let b = a + a; let c = b + b; let d = c + c; let e = d + d; let f = e + e; len(f) > 0",
		"too much text":   "let a = state.s + state.s; let b = a + a; let c = b + b; c startsWith 'a'",
		"text in a loop":  "any(state.l, len(state.s + 'x') < 0)",
		"deep doubling":   "let a = [state.l, state.l]; let b = [a, a]; let c = [b, b]; let d = [c, c]; let e = [d, d]; e == [d, d] && e == [d, d]",
		"comparing":       "all(state.l, state.l == previous.l)",
		"comparing flat":  strings.Repeat("state.l == previous.l && ", 60) + "true",
		"pattern":         `state.s matches "(a|aa|aaa|a?a?a?a?a?a?a?a?a?a?a?a?a?a?)+b"`,
		"pattern in loop": `any(state.l, .same matches "x*x*x*x*y")`,
		"looking":         "all(state.l, !(state.s contains 'b'))",
		"looking in list": "all(state.l, !('y' in state.l))",
		"keys":            "all(state.l, len(keys(#)) == 2 && len(keys(state)) == 3)",
		"lower":           "all(state.l, lower(state.s) != '')",
	} {
		t.Run(name, func(t *testing.T) {
			p := ckpt.DefaultPolicy()
			p.Rules = []ckpt.Rule{{Name: "hostile", When: when, Severity: ckpt.SeverityCritical}, {Name: "fine", When: "len(state.l) == 20000", Severity: ckpt.SeverityInfo}}
			w := New()
			if err := w.Check(&p); err != nil {
				t.Fatal(err)
			}
			found := broken(w, &p, state, state, ckpt.ContentTypeJSON)
			if len(found) != 2 || found[0].Rule != "hostile" || found[0].Severity != ckpt.SeverityWarn || !strings.Contains(found[0].Message, "The rule hostile of the policy was stopped") {
				t.Fatalf("%+v", found)
			}
			if found[1].Rule != "fine" {
				t.Errorf("the rule after it was not tried: %+v", found[1])
			}
		})
	}
}

// TestManyHostileRulesAreStopped: all rules of a policy together have a limit
// too.
func TestManyHostileRulesAreStopped(t *testing.T) {
	p := ckpt.DefaultPolicy()
	for i := range ckpt.MaxRules {
		p.Rules = append(p.Rules, ckpt.Rule{Name: "r" + string(rune('A'+i)), When: "all(state.l, all(state.l, true))", Severity: ckpt.SeverityInfo})
	}
	found := broken(New(), &p, hostileState(), nil, ckpt.ContentTypeJSON)
	if len(found) != ckpt.MaxRules {
		t.Errorf("%d of %d rules were stopped", len(found), ckpt.MaxRules)
	}
}

func TestRulesAreNotTriedOnHugeStates(t *testing.T) {
	p := ckpt.DefaultPolicy()
	p.Rules = []ckpt.Rule{{Name: "mine", When: "state == 1", Severity: ckpt.SeverityInfo}}
	state := asJSON(t, strings.Repeat("x", rule.MaxState+20_000))
	found := broken(New(), &p, state, nil, ckpt.ContentTypeJSON)
	if len(found) != 1 || !strings.Contains(found[0].Message, "was stopped: the state has 4.2 MB") {
		t.Errorf("%+v", found)
	}
}

func TestRulesInARun(t *testing.T) {
	m := newMade(t, ruled("step.tool == 'bash' && step.result == 'no'"))
	m.step("bash", 1, "yes", "")
	m.step("bash", 2, "no", "")
	m.expect("mine", ckpt.SeverityCritical, 1)
	if f := m.found[0]; f.Message != "it is too much" || f.Advice != "it is too much" || f.Evidence.Steps[0] != "s1" || f.Evidence.Tool != "bash" {
		t.Errorf("%+v", f)
	}
	for i := range 10 {
		m.step("bash", 3+i, "no", "")
	}
	if len(m.found) != 1 {
		t.Errorf("the cooldown lets through %s", m.all())
	}
	m = newMade(t, ruled("state.n < previous.n"), func(p *ckpt.Policy) { p.Detectors["mine"] = ckpt.Detector{Tier: "warn"} })
	m.save(map[string]any{"n": 3})
	m.save(map[string]any{"n": 4})
	m.expectNone()
	m.save(map[string]any{"n": 2})
	if len(m.found) != 1 || m.found[0].SinceSeq != 2 || m.found[0].Severity != ckpt.SeverityWarn || !slices.Equal(m.found[0].Evidence.Checkpoints, []string{"c3"}) {
		t.Errorf("%+v", m.found)
	}
	m = newMade(t, ruled("measures.errors_in_a_row >= 2 && step.tool != 'x'"))
	for i := range 3 {
		m.step("t", i, nil, "bad")
	}
	m.expect("mine", ckpt.SeverityCritical, 2) // the measures are from before the step
}

func TestPoliciesOfRulesAndDetectors(t *testing.T) {
	for want, change := range map[string]func(*ckpt.Policy){
		"rules[0]: repeat comes with the program": func(p *ckpt.Policy) {
			p.Rules = []ckpt.Rule{{Name: "repeat", When: "true", Severity: ckpt.SeverityInfo}}
		},
		"detectors.repeet: there is no such rule":         detector("repeet", ckpt.Detector{Tier: "off"}),
		"detectors.repeat.warn is 2.5":                    detector(RuleRepeat, ckpt.Detector{Warn: 2.5}),
		"detectors.repeat.critical is 9 in a window of 5": detector(RuleRepeat, ckpt.Detector{Critical: 9, CriticalWindow: 5}),
		"detectors.stale.critical is 9 in a window of 8":  detector(RuleStale, ckpt.Detector{Critical: 9}),
		"detectors.cycle.critical is 201":                 detector(RuleCycle, ckpt.Detector{Critical: 201}),
	} {
		p := ckpt.DefaultPolicy()
		change(&p)
		if err := New().Check(&p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	p := ckpt.DefaultPolicy()
	p.Detectors = map[string]ckpt.Detector{RuleBudget: {Warn: 0.5}, ckpt.RuleSharedKeys: {Tier: "off"}, "mine": {Cooldown: 5}, RuleCycle: {Warn: 3}}
	p.Rules = []ckpt.Rule{{Name: "mine", When: "true", Severity: ckpt.SeverityInfo}}
	if err := New().Check(&p); err != nil {
		t.Error(err)
	}
	for _, rule := range New().Rules(&p) {
		if rule.About == "" || rule.Family == "" || rule.Tier == "" || rule.Rule == RuleBudget && rule.Warn != 0.5 {
			t.Errorf("%+v", rule)
		}
	}
}

// TestAWatchIsForManyGoroutines: many goroutines can use a watch at once.
func TestAWatchIsForManyGoroutines(t *testing.T) {
	w := New()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 300 {
				p := ckpt.DefaultPolicy()
				p.Rules = []ckpt.Rule{{Name: "mine", When: "state.n == " + time.Duration(i * j).String()[:1], Severity: ckpt.SeverityInfo}}
				broken(w, &p, []byte(`{"n":1}`), nil, ckpt.ContentTypeJSON)
			}
		})
	}
	all.Wait()
}

// TestRulesEndWithTheirContext: the evaluation of rules ends when the client
// has gone away.
func TestRulesEndWithTheirContext(t *testing.T) {
	policy := ckpt.DefaultPolicy()
	policy.Rules = []ckpt.Rule{{Name: "mine", When: "all(state, any(state, # == -1) or true)", Severity: ckpt.SeverityWarn}}
	state := []byte(metertest.Many("[", 2000, func(i int) string { return fmt.Sprint(i) }, "]"))
	_, err := New().State(metertest.EndAfter(3), &policy, observer.RuleRun{}, state, nil, ckpt.ContentTypeJSON)
	if err != context.Canceled {
		t.Errorf("a rule on a state: %v", err)
	}
	policy.Rules[0].When = "all(step.args, any(step.args, # == -1) or true)"
	_, err = New().Step(metertest.EndAfter(3), &policy, observer.RuleRun{}, &ckpt.Step{Args: state, Status: ckpt.StepSucceeded})
	if err != context.Canceled {
		t.Errorf("a rule on a step: %v", err)
	}
}
