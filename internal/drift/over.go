package drift

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Over reports whether the rule of an open finding no longer holds.
func (r *run) Over(f *ckpt.Finding) bool {
	if r.set.off {
		return false
	}
	set, known := r.set.rules[f.Rule]
	if !known {
		return slices.Contains(r.clear, f.Rule) || r.set.own(f.Rule).off || !r.set.hasOwn(f.Rule)
	}
	if set.off {
		return true
	}
	var e ckpt.Evidence
	_ = json.Unmarshal(f.Evidence, &e) // the zero value names nothing, so nothing holds any more
	for i := range r.loops {
		if l := &r.loops[i]; l.rule() == f.Rule {
			return r.isQuiet(l)
		}
	}
	switch f.Rule {
	case RuleNoProgress:
		return r.progress.told.Rank() < f.Severity.Rank() || r.set.policy.NoProgressSteps == 0 && r.set.policy.NoProgressTime == 0
	case RuleProgressReversed:
		return !r.progress.declared || r.progress.last >= leastOf(&e)
	case RuleLatencyDrift, RuleTokenDrift:
		return r.isSteady(f.Rule, e.Tool)
	case RuleBudget:
		return r.isWithinBudget(f)
	case RuleUnparsable:
		return r.sound >= int64(set.over)
	case RuleSchema, RuleSchemaStopped:
		return slices.Contains(r.clear, f.Rule) || r.set.policy.Schema == nil
	case RuleGoalChanged:
		return r.goal.told == ""
	case RuleBlindSteps:
		return !r.blind.told
	case RuleEdgeRevisits:
		return r.isCalm(set)
	case RuleStaleCheckpoint:
		return r.routine.told == 0 || r.routine.after <= 0
	case RuleContextAge:
		return r.refresh.told == 0 || r.refresh.after <= 0
	}
	return r.isMended(f.Rule, &e)
}

// hasOwn reports whether the policy has a rule of the user with this name.
func (s *settings) hasOwn(name string) bool {
	return slices.ContainsFunc(s.policy.Rules, func(r ckpt.Rule) bool { return r.Name == name })
}

// isQuiet reports whether the newest steps have no sign of a loop.
func (r *run) isQuiet(l *setLoop) bool {
	if l.repeats() && r.grew > 0 && r.grew == r.steps.steps {
		return true
	}
	return l.quiet(r.steps, l.set.over) && (l.repeats() || r.fewErrors())
}

// fewErrors reports whether the newest steps have less than half the errors that
// error_rate warns about.
func (r *run) fewErrors() bool {
	set, n := r.set.rules[RuleErrorRate], 0
	for i := range min(set.warn.window, r.steps.len()) {
		n += b2i(r.steps.last(i).bad)
	}
	return 2*float64(n) < set.warn.value
}

// goodInRow reports whether none of the newest steps failed.
func (h *history) goodInRow(n int) bool {
	return h.len() >= n && h.matching(n, func(e *entry) bool { return e.bad }) == 0
}

// matching returns how many of the newest n steps match.
func (h *history) matching(n int, match func(*entry) bool) (found int) {
	for i := range n {
		found += b2i(match(h.last(i)))
	}
	return found
}

// freshInRow reports whether none of the newest n steps has a pair that came in the n
// steps before it.
func (h *history) freshInRow(n int) bool {
	if h.len() < n {
		return false
	}
	for i := range n {
		if e, at := h.last(i), h.steps-1-int64(i); e.told && e.before >= 0 && at-e.before <= int64(n) {
			return false
		}
	}
	return true
}

func (repeat) quiet(h *history, n int) bool        { return h.freshInRow(n) }
func (cycle) quiet(h *history, n int) bool         { return h.freshInRow(n) }
func (errorStreak) quiet(h *history, n int) bool   { return h.goodInRow(n) }
func (errorRate) quiet(h *history, n int) bool     { return h.goodInRow(n) }
func (sameError) quiet(h *history, n int) bool     { return h.goodInRow(n) }
func (repeatedError) quiet(h *history, n int) bool { return h.goodInRow(n) }

func (repeatedResult) quiet(h *history, n int) bool {
	if h.len() < n {
		return false
	}
	for i := range n {
		for j := range i {
			if h.last(j).sameAnswer(h.last(i)) {
				return false
			}
		}
	}
	return true
}

func (stale) quiet(h *history, n int) bool {
	return h.len() >= n && h.matching(n, func(e *entry) bool { return e.told && e.old }) == 0
}

func (churn) quiet(h *history, n int) bool {
	if h.len() < n {
		return false
	}
	set := map[uint64]bool{}
	for i := range n {
		if e := h.last(i); e.effect != 0 && !e.bad {
			if set[e.effect] {
				return false
			}
			set[e.effect] = true
		}
	}
	return true
}

// isSteady reports whether the calls of a tool are near their baseline again. Then the
// gauge may report the tool anew.
func (r *run) isSteady(rule, tool string) bool {
	for _, g := range r.gauges {
		if g.rule != rule {
			continue
		}
		for kind, b := range g.kinds {
			if kind.tool == tool && 2*b.sum > g.set.warn.value {
				return false
			}
		}
	}
	delete(r.spells, rule+" "+tool)
	return true
}

// isWithinBudget reports whether the policy now allows more than what a finding is about.
func (r *run) isWithinBudget(f *ckpt.Finding) bool {
	set := r.set.rules[RuleBudget]
	for what, limit := range limits(&r.set.policy.Budget) {
		if limit > 0 && hasUnit(f, budgetUnits[what]) {
			severity, _ := set.budgetTier(r.spent.used[what] / limit)
			return severity.Rank() < f.Severity.Rank()
		}
	}
	return true
}

func hasUnit(f *ckpt.Finding, unit string) bool { return hasLimit(f, unit) }

// isMended reports whether the newest state is as it was before a finding.
func (r *run) isMended(rule string, e *ckpt.Evidence) bool {
	newest := r.states.back(1)
	if newest == nil || slices.Contains(e.Checkpoints, newest[0].ID) {
		return false
	}
	p := &newest[0]
	switch rule {
	case RuleLostKeys:
		return p.Keys != nil && !slices.ContainsFunc(e.Pointers, func(pointer string) bool { return p.Keys[keyOf(pointer)] == "" })
	case RuleTypeChanged:
		return p.Keys[keyOf(e.Pointer)] == e.Threshold
	case RuleCounterReversed:
		value, has := p.Counters[e.Pointer]
		return has && value >= leastOf(e)
	}
	return true // checkpoint_size
}

// notLess begins the threshold of a value that must not fall.
const notLess = "not less than "

// leastOf returns the number that a value must reach again.
func leastOf(e *ckpt.Evidence) float64 {
	least, _ := strconv.ParseFloat(strings.TrimPrefix(e.Threshold, notLess), 64)
	return least
}
