package rule

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/meter"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
)

// tried evaluates an expression with a fixed state, previous state, step, run
// and measures.
func tried(t *testing.T, when string) (found []observer.Found) {
	t.Helper()
	r, err := compile(ckpt.Rule{Name: "mine", When: when, Severity: ckpt.SeverityWarn}, knownMembers([]string{"steps", "errors_in_10"}), allPatterns())
	if err != nil {
		t.Errorf("%s: %v", when, err)
		return nil
	}
	took, progress := int64(1500), 0.4
	step := ckpt.Step{Key: "k", Name: "bash", Args: ckpt.JSON(`{"cmd":"ls"}`), Result: ckpt.JSON(`"ok"`), Status: ckpt.StepSucceeded, Attempt: 1}
	step.DurationMS = &took
	run := observer.RuleRun{
		Agent: "a", Run: "main", Status: "running", Goal: "count sheep", Attempt: 2, Steps: 7, Progress: &progress,
		Measures: map[string]float64{"steps": 7, "errors_in_10": 4}, Last: &step,
	}
	state := []byte(`{"n":5,"share":0.25,"name":"Dolly","tags":["a","b"],"ok":true,"none":null,"text":"Grün und gut",
		"tasks":[{"id":1,"done":true,"cost":2},{"id":2,"done":false,"cost":3.5},{"id":3,"done":false,"cost":1}],"in":{"side":{"x":1}},"a-b":9}`)
	previous := []byte(`{"n":6,"tasks":[],"in":{"side":{"x":1}}}`)
	if !r.state {
		found, _, _ = TryStep(t.Context(), []*Rule{r}, run, &step)
		return found
	}
	found, _, _ = TryState(t.Context(), []*Rule{r}, run, state, previous, ckpt.ContentTypeJSON)
	return found
}

func TestExpressions(t *testing.T) {
	for when, want := range map[string]bool{
		"true": true, "false": false, "1 < 2": true, "1 >= 2": false, "'a' < 'b'": true, "1 == 1.0": true, "'1' == 1": false,
		"1 + 2 * 3 == 7": true, "(1 + 2) * 3 == 9": true, "7 / 2 == 3.5": true, "7 % 4 == 3": true, "-2 < +1": true, "1 / 0 > 0": false,
		"not false && !false": true, "true and false or true": true, "nil == nil": true, "(nil ?? 3) == 3": true,
		"state.n == 5": true, "state.n > 4 && state.share < 0.5": true, "state.n < previous.n": true, "state['a-b'] == 9": true,
		"state.missing.deeper > 3": false, "state.missing == nil": true, "state.none == nil": true, "state.n > nil": false, "state?.in?.side?.x == 1": true,
		"state.in == previous.in": true, "state.tasks == previous.tasks": false, "state.tags == ['a', 'b']": true,
		"state.tags[0] == 'a' && state.tags[-1] == 'b' && state.tags[2] == nil": true,
		"len(state.tasks) == 3 && len(state.name) == 5 && len(state.in) == 1":   true, "len(state.text) == 12": true,
		"any(state.tasks, .done)": true, "all(state.tasks, .cost > 1)": false, "none(state.tasks, .id == 9)": true, "one(state.tasks, .done)": true,
		"count(state.tasks, !.done) == 2": true, "sum(state.tasks, .cost) == 6.5": true, "len(filter(state.tasks, {.cost > 1})) == 2": true,
		"map(state.tasks, .id) == [1, 2, 3]": true, "find(state.tasks, .id == 2).cost == 3.5": true, "any(state.tasks, # == state.tasks[1])": true,
		"any(state.tags, # == 'b' && #index == 1)": true, "count(state.tasks, any(state.tags, # == 'a')) == 3": true,
		"state.tasks | filter(.done) | len() == 1": true,
		"'a' in state.tags":                        true, "'n' in state": true, "'zz' not in state": true, "'oll' in state.name": true,
		"state.name contains 'oll'": true, "state.name startsWith 'D'": true, "state.name endsWith 'x'": false, "state.name matches '^D.*y$'": true,
		"lower(state.name) == 'dolly'": true, "state.name + '!' == 'Dolly!'": true, "state.name + 1 == nil": true,
		"max(state.n, 9) == 9 && min(2, state.n) == 2 && abs(-3) == 3": true, "keys(state.in) == ['side']": true,
		"let open = count(state.tasks, !.done); open == 2": true, "state.ok ? state.n == 5 : false": true,
		"step.tool == 'bash' && step.duration_ms > 1000 && step.args.cmd == 'ls'": true, "step.failed": false, "step.cost_usd > 0": false,
		"run.steps == 7 && run.goal contains 'sheep' && run.progress < 0.5": true, "measures.errors_in_10 >= 4": true,
		"state.n": false, "step": false, "'true'": false, "all(state.n, true)": false, "any(state.none, true)": false,
	} {
		if got := tried(t, when); (len(got) == 1) != want {
			t.Errorf("%s: %+v", when, got)
		}
	}
}

// FuzzRule: every expression is refused or can be evaluated, with bounded work.
func FuzzRule(f *testing.F) {
	for _, when := range []string{"state.n > 3", "any(state.l, .x == #index)", "let a = 1; a + 2 == 3", "state.s matches 'a+'", "'a' in keys(state)", "!(1 ?? nil)[0]", "sum(map(state.l, len(#)), #) > 1"} {
		f.Add(when, `{"n":1,"l":[{"x":0},"abc",[1]],"s":"aaa"}`)
	}
	f.Fuzz(func(t *testing.T, when, state string) {
		r, err := compile(ckpt.Rule{Name: "mine", When: when, Severity: ckpt.SeverityWarn}, knownMembers([]string{"steps", "errors_in_10"}), allPatterns())
		if err != nil {
			return
		}
		_, _, _ = TryStep(t.Context(), []*Rule{r}, observer.RuleRun{}, &ckpt.Step{Result: ckpt.JSON(state)})
		_, _, _ = TryState(t.Context(), []*Rule{r}, observer.RuleRun{}, []byte(state), []byte(state), ckpt.ContentTypeJSON)
	})
}

// TestReadingRulesIsBounded: the patterns of all rules of a policy have one
// common limit.
func TestReadingRulesIsBounded(t *testing.T) {
	var rules []ckpt.Rule
	for i := range 60 {
		rules = append(rules, ckpt.Rule{Name: fmt.Sprintf("r%d", i), When: "state.s matches '(a{9}b{9}){99}'", Severity: ckpt.SeverityWarn})
	}
	if _, err := Compile(rules, nil); err == nil || !strings.Contains(err.Error(), "too large together") {
		t.Errorf("rules: %v", err)
	}
}

// allPatterns is the budget for the patterns of one rule.
func allPatterns() *meter.PatternBudget {
	b := meter.PatternBudget(meter.MaxPatterns)
	return &b
}

// TestDocumentation: the documentation names every function of the language and
// every member.
func TestDocumentation(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "DRIFT.md"))
	if err != nil {
		t.Fatal(err)
	}
	words := functionNames()
	for _, members := range knownMembers(nil) {
		words = append(words, members...)
	}
	for _, word := range words {
		if !strings.Contains(string(text), word) {
			t.Errorf("docs/DRIFT.md does not name %s", word)
		}
	}
}
