package drift

import (
	"encoding/json"
	"fmt"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
)

// goal is the goal of the run.
type goal struct {
	first string
	told  string // the other goal that was reported, as the evidence has it
}

// Goal checks a declared goal.
func (r *run) Goal(now time.Time, declared string, updated bool) []observer.Found {
	if r.set.off || declared == "" {
		return nil
	}
	g, set := &r.goal, r.set.rules[RuleGoalChanged]
	switch {
	case g.first == "" || updated:
		g.first, g.told = declared, ""
		return nil
	case declared == g.first:
		g.told = ""
		return nil
	case phrase.Cut(declared) == g.told || set.off:
		return nil
	}
	g.told = phrase.Cut(declared)
	return []observer.Found{{
		Rule: RuleGoalChanged, Severity: set.one, About: set.of, SinceSeq: r.seq,
		Message: fmt.Sprintf("The goal was %q and is %q after %s, without a goal_update event.", phrase.Cut(g.first),
			phrase.Cut(declared), phrase.Count(int(r.ended), "step")),
		Advice: fmt.Sprintf("Your goal was %q, %s ago. Go back to it, or append a goal_update event that says why it changed.",
			phrase.Cut(g.first), phrase.Count(int(r.ended), "step")),
		Evidence: ckpt.Evidence{Threshold: phrase.Cut(g.first), Observed: phrase.Cut(declared)},
	}}
}

// remember restores from the evidence of a finding that another goal than the first was
// reported before a restart.
func (g *goal) remember(evidence ckpt.JSON) {
	var e ckpt.Evidence
	if json.Unmarshal(evidence, &e) == nil && e.Threshold == phrase.Cut(g.first) {
		g.told = e.Observed
	}
}
