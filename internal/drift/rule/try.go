package rule

import (
	"context"
	"fmt"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/meter"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
)

// MaxState is the maximum size of a state, and of the arguments and result of a step, on
// which the user's own rules are tried.
const MaxState = 4 << 20

// knownMembers are the members of step, run and measures.
func knownMembers(measures []string) map[string][]string {
	return map[string][]string{
		"step": {"key", "tool", "args", "status", "failed", "attempt", "result", "error", "duration_ms", "input_tokens",
			"output_tokens", "cost_usd", "progress"},
		"run":      {"agent", "run", "status", "goal", "attempt", "steps", "progress"},
		"measures": measures,
	}
}

// Compile compiles all rules of a policy. An error says which rule is wrong and where.
// measures are the names of the measures that rules can read.
func Compile(rules []ckpt.Rule, measures []string) ([]*Rule, error) {
	list, budget, known := make([]*Rule, 0, len(rules)), meter.PatternBudget(meter.MaxPatterns), knownMembers(measures)
	for i := range rules {
		r, err := compile(rules[i], known, &budget)
		if err != nil {
			return nil, fmt.Errorf("rules[%d].when of %s: %w", i, rules[i].Name, err)
		}
		list = append(list, r)
	}
	return list, nil
}

// trial is one step or one state on which rules are tried.
type trial struct {
	names map[string]any
	size  int    // of the data that they can read
	what  string // "step" or "state"
	found ckpt.Evidence
}

// try returns the rules that are true, and those that had to be stopped. clear are the
// names of the others.
func (t *trial) try(ctx context.Context, rules []*Rule) (found []observer.Found, clear []string, err error) {
	left := MaxWorkTogether
	for _, r := range rules {
		if t.size > MaxState {
			found = append(found, t.tooLarge(r))
			continue
		}
		work := min(left, MaxWork)
		yes, stopped, rest, err := r.holds(ctx, t.names, work)
		if err != nil {
			return nil, nil, err
		}
		left -= work - rest
		switch {
		case stopped:
			found = append(found, t.stopped(r, work))
		case yes:
			found = append(found, t.holding(r))
		default:
			clear = append(clear, r.Name)
		}
	}
	return found, clear, nil
}

func (t *trial) holding(r *Rule) observer.Found {
	f := observer.Found{Rule: r.Name, Severity: r.Severity, Message: r.Message, Advice: r.Message, About: r.about(), Evidence: t.found}
	f.Evidence.Threshold, f.Evidence.Observed = phrase.Cut(r.When), "true"
	if f.Message == "" {
		f.Message = fmt.Sprintf("The rule %s of the policy holds: %s.", r.Name, phrase.Cut(r.When))
		f.Advice = fmt.Sprintf("The rule %s of your policy holds: %s. Check what it names before you continue.", r.Name, phrase.Cut(r.When))
	}
	return f
}

func (t *trial) stopped(r *Rule, work int) observer.Found {
	f := observer.Found{Rule: r.Name, Severity: ckpt.SeverityWarn, Evidence: t.found}
	f.Evidence.Threshold, f.Evidence.Observed = fmt.Sprintf("at most %d units of work and %s of text", work, phrase.Bytes(maxText)), "stopped"
	f.Message = fmt.Sprintf("The rule %s of the policy was stopped: it needs more than %d units of work or %s of "+
		"text for one %s.", r.Name, work, phrase.Bytes(maxText), t.what)
	f.Advice = fmt.Sprintf("The rule %s of your policy was stopped after %d units of work, and has no verdict. Its "+
		"author must make it simpler.", r.Name, work)
	return f
}

func (t *trial) tooLarge(r *Rule) observer.Found {
	f := observer.Found{Rule: r.Name, Severity: ckpt.SeverityWarn, Evidence: t.found}
	f.Evidence.Threshold, f.Evidence.Observed = fmt.Sprintf("at most %s", phrase.Bytes(MaxState)), phrase.Bytes(int64(t.size))
	f.Message = fmt.Sprintf("The rule %s of the policy was stopped: the %s has %s, and rules are evaluated on at most %s.", r.Name,
		t.what, phrase.Bytes(int64(t.size)), phrase.Bytes(MaxState))
	f.Advice = fmt.Sprintf("The rule %s of your policy was not evaluated on %s. Make the %s smaller.", r.Name, phrase.Bytes(int64(t.size)), t.what)
	return f
}

// about returns what findings of the rule are about: the state, if the rule reads one or
// its author says so.
func (r *Rule) about() ckpt.About {
	if r.Suspect == nil && r.state || r.Suspect != nil && *r.Suspect {
		return ckpt.AboutState
	}
	return ckpt.AboutRun
}

// TryStep tries the rules that do not need a state. It returns those that hold, and the
// names of those that do not.
func TryStep(ctx context.Context, rules []*Rule, run observer.RuleRun, s *ckpt.Step) ([]observer.Found, []string, error) {
	var chosen []*Rule
	for _, r := range rules {
		if !r.state {
			chosen = append(chosen, r)
		}
	}
	if len(chosen) == 0 {
		return nil, nil, nil
	}
	t := trial{what: "step", size: len(s.Args) + len(s.Result), found: ckpt.Evidence{Tool: s.Name}}
	if s.Key != "" {
		t.found.Steps = []string{s.Key}
	}
	t.names = runNames(run)
	if t.size <= MaxState {
		t.names["step"] = stepNames(s)
	}
	return t.try(ctx, chosen)
}

// TryState tries the rules that need a state, and those that need neither a state nor a
// step. It returns those that hold, and the names of those that do not.
func TryState(ctx context.Context, rules []*Rule, run observer.RuleRun, state, previous []byte,
	contentType string) ([]observer.Found, []string, error) {
	var chosen []*Rule
	before := false
	for _, r := range rules {
		if r.state || !r.step {
			chosen, before = append(chosen, r), before || r.before
		}
	}
	if len(chosen) == 0 {
		return nil, nil, nil
	}
	t := trial{what: "state", size: len(state), names: runNames(run)}
	if before {
		t.size += len(previous)
	}
	if run.Last != nil {
		t.size += len(run.Last.Args) + len(run.Last.Result)
	}
	if t.size <= MaxState {
		if ckpt.IsJSON(contentType) {
			t.names["state"] = decoded(state)
		}
		if before {
			t.names["previous"] = decoded(previous)
		}
		if run.Last != nil {
			t.names["step"] = stepNames(run.Last)
		}
	}
	return t.try(ctx, chosen)
}

// decoded returns a JSON value in the form for expressions, nil if it is not valid JSON.
func decoded(value []byte) any {
	if len(value) == 0 {
		return nil
	}
	v, err := meter.Value(value)
	if err != nil {
		return nil
	}
	return v
}

func runNames(r observer.RuleRun) map[string]any {
	measures := make(map[string]any, len(r.Measures))
	for name, value := range r.Measures {
		measures[name] = value
	}
	return map[string]any{"measures": measures, "run": map[string]any{
		"agent": r.Agent, "run": r.Run, "status": r.Status, "goal": r.Goal, "attempt": float64(r.Attempt), "steps": float64(r.Steps),
		"progress": floatOrNil(r.Progress),
	}}
}

func stepNames(s *ckpt.Step) map[string]any {
	return map[string]any{
		"key": s.Key, "tool": s.Name, "args": decoded(s.Args), "status": string(s.Status), "failed": s.Status == ckpt.StepFailed,
		"attempt": float64(s.Attempt), "result": decoded(s.Result), "error": textOrNil(string(s.Error)),
		"duration_ms": intOrNil(s.DurationMS), "input_tokens": intOrNil(s.InputTokens), "output_tokens": intOrNil(s.OutputTokens),
		"cost_usd": floatOrNil(s.CostUSD), "progress": floatOrNil(s.Progress),
	}
}

func textOrNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func intOrNil(n *int64) any {
	if n == nil {
		return nil
	}
	return float64(*n)
}

func floatOrNil(f *float64) any {
	if f == nil {
		return nil
	}
	return *f
}
