package drift

import (
	"fmt"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
)

// budgetNotice is the fraction of the warn threshold at which a budget is reported as
// info.
const budgetNotice = 2.0 / 3

// The resources of a budget.
const (
	budgetSteps = iota
	budgetTokens
	budgetCost
	budgetWall
	budgets
)

// budgetUnits are the ends of the thresholds of the findings. They also distinguish the
// budgets.
var budgetUnits = [budgets]string{"steps", "tokens", "dollars", "of wall time"}

// spent is what a run used, and what was reported about it.
type spent struct {
	used [budgets]float64
	told [budgets]ckpt.Severity
}

func (s *spent) add(m *ckpt.Measures) {
	s.used[budgetSteps]++
	for _, n := range []*int64{m.InputTokens, m.OutputTokens} {
		if n != nil && *n > 0 {
			s.used[budgetTokens] += float64(*n)
		}
	}
	if m.CostUSD != nil && *m.CostUSD > 0 {
		s.used[budgetCost] += *m.CostUSD
	}
}

// limits returns the budget of a policy, 0 for no limit.
func limits(b *ckpt.Budget) [budgets]float64 {
	return [budgets]float64{float64(b.Steps), float64(b.Tokens), b.CostUSD, float64(b.WallTime)}
}

// overspent finds that a budget is used up, or nearly used up.
func (r *run) overspent(found []observer.Found, now time.Time) []observer.Found {
	if r.set.policy.Budget == (ckpt.Budget{}) {
		return found
	}
	set := r.set.rules[RuleBudget]
	if set.off {
		return found
	}
	if !r.startedAt.IsZero() {
		r.spent.used[budgetWall] = float64(now.Sub(r.startedAt))
	}
	for what, limit := range limits(&r.set.policy.Budget) {
		if limit <= 0 {
			continue
		}
		severity, need := set.budgetTier(r.spent.used[what] / limit)
		if severity.Rank() <= r.spent.told[what].Rank() {
			continue
		}
		r.spent.told[what] = severity
		found = append(found, r.tellBudget(what, severity, need, limit))
	}
	return found
}

// budgetTier is tierOf with an additional tier below warn.
func (s setting) budgetTier(share float64) (ckpt.Severity, float64) {
	severity, need := s.tierOf(share)
	if notice := budgetNotice * s.warn.value; severity == "" && share >= notice {
		return ckpt.SeverityInfo, notice
	}
	return severity, need
}

func (r *run) tellBudget(what int, severity ckpt.Severity, need, limit float64) observer.Found {
	used := r.spent.used[what]
	share := fmt.Sprintf("%.0f %%", 100*used/limit)
	f := observer.Found{
		Rule: RuleBudget, Severity: severity, SinceSeq: r.seq,
		Message: fmt.Sprintf("The run has used %s of %s %s, %s of its budget.", amount(what, used), amount(what, limit), budgetUnits[what], share),
		Advice: fmt.Sprintf("You have used %s of your budget of %s %s. Save what you have, and then finish with it.",
			share, amount(what, limit), budgetUnits[what]),
		Evidence: ckpt.Evidence{
			Threshold: fmt.Sprintf("%.0f %% of %s %s", 100*need, amount(what, limit), budgetUnits[what]),
			Observed:  fmt.Sprintf("%s %s, %s", amount(what, used), budgetUnits[what], share),
		},
	}
	if severity == ckpt.SeverityInfo {
		f.Advice = fmt.Sprintf("You have used %s of your budget of %s %s. Plan how to use what is left.",
			share, amount(what, limit), budgetUnits[what])
	}
	return f
}

func amount(what int, value float64) string {
	switch what {
	case budgetWall:
		return spentText(time.Duration(value))
	case budgetCost:
		return fmt.Sprintf("%.2f", value)
	}
	return phrase.Figure(value)
}

// remember restores what was reported before a restart about the limits that the policy
// has now.
func (s *spent) remember(open []ckpt.Finding, limits [budgets]float64) {
	for i := range open {
		if open[i].Rule != RuleBudget {
			continue
		}
		for what, unit := range budgetUnits {
			if hasLimit(&open[i], "of "+amount(what, limits[what])+" "+unit) && open[i].Severity.Rank() > s.told[what].Rank() {
				s.told[what] = open[i].Severity
			}
		}
	}
}

// markTold marks every tier that was reached as reported.
func (r *run) markTold() {
	set := r.set.rules[RuleBudget]
	for what, limit := range limits(&r.set.policy.Budget) {
		if limit > 0 {
			r.spent.told[what], _ = set.budgetTier(r.spent.used[what] / limit)
		}
	}
}
