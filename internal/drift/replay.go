package drift

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
)

// replay processes the stored data of a run, so that a new watch continues where the last
// one ended: the same steps give the same counts, streaks and cooldowns. Findings on the
// way were reported before.
func (r *run) replay(past *observer.RunPast) {
	r.ended = max(0, past.TotalSteps-int64(len(past.Steps)))
	r.steps.steps = 0
	waiting := dismissals(past.Dismissed)
	for i := range past.Steps {
		for len(waiting) > 0 && waiting[0].at.Before(past.Steps[i].At) {
			r.Forget(waiting[0].rule)
			waiting = waiting[1:]
		}
		r.Step(past.Steps[i])
	}
	for _, d := range waiting {
		r.Forget(d.rule)
	}
	for i := range past.States {
		r.State(past.States[i])
	}
	r.goal = goal{first: past.Goal}
	r.goal.remember(past.Open)
	r.resumeProgress(past)
	r.resumeBudget(past)
	r.resumeAges(past)
}

// dismissal is the time at which a rule was told to forget.
type dismissal struct {
	rule string
	at   time.Time
}

func dismissals(byRule map[string]time.Time) []dismissal {
	list := make([]dismissal, 0, len(byRule))
	for rule, at := range byRule {
		list = append(list, dismissal{rule, at})
	}
	slices.SortFunc(list, func(a, b dismissal) int { return a.at.Compare(b.at) })
	return list
}

// resumeProgress restores the progress that heartbeats declared.
func (r *run) resumeProgress(past *observer.RunPast) {
	if past.Progress == nil {
		return
	}
	p := &r.progress
	if !p.declared || *past.Progress > p.best {
		p.best = *past.Progress
	}
	p.declared, p.last = true, *past.Progress
	if past.ProgressAt.After(p.grewAt) {
		p.grewAt = past.ProgressAt
		p.grewStep, p.grewSeq = r.placeAt(past, past.ProgressAt)
		counted := r.steps.steps
		for i := len(past.Steps) - 1; i >= 0 && past.Steps[i].At.After(past.ProgressAt); i-- {
			counted -= int64(b2i(!r.set.ignore[past.Steps[i].Tool]))
		}
		r.grew = max(r.grew, counted)
	}
	if at := past.Dismissed[RuleNoProgress]; at.After(p.grewAt) {
		p.grewAt = at
		p.grewStep, p.grewSeq = r.placeAt(past, at)
	}
	p.told = r.toldOfStall(past.Open)
}

// placeAt returns how many steps had ended at a time, and the run's newest checkpoint then.
func (r *run) placeAt(past *observer.RunPast, at time.Time) (step, seq int64) {
	step, seq = r.ended, r.seq
	for i := len(past.Steps) - 1; i >= 0 && past.Steps[i].At.After(at); i-- {
		step--
		seq = past.Steps[i].AfterSeq
	}
	return step, seq
}

// toldOfStall returns what was reported about no_progress since progress last grew, for
// the limit that the policy has now. A finding about an earlier stall can still be open.
func (r *run) toldOfStall(open []ckpt.Finding) (told ckpt.Severity) {
	for i := range open {
		f := &open[i]
		if f.Rule == RuleNoProgress && !f.At.Before(r.progress.grewAt) && hasLimit(f, "× "+stallLimit(r.set.policy)) &&
			f.Severity.Rank() > told.Rank() {
			told = f.Severity
		}
	}
	return told
}

// hasLimit reports whether the threshold of a finding ends with this limit. The policy
// can have changed since the finding was made.
func hasLimit(f *ckpt.Finding, limit string) bool {
	var e ckpt.Evidence
	return json.Unmarshal(f.Evidence, &e) == nil && strings.HasSuffix(e.Threshold, " "+limit)
}

// resumeBudget restores the totals. The newest steps are only a part of them.
func (r *run) resumeBudget(past *observer.RunPast) {
	r.spent = spent{}
	r.spent.used[budgetSteps] = float64(past.TotalSteps)
	r.spent.used[budgetTokens] = float64(past.InputTokens + past.OutputTokens)
	r.spent.used[budgetCost] = past.CostUSD
	if _, dismissed := past.Dismissed[RuleBudget]; dismissed {
		if !r.startedAt.IsZero() && r.now.After(r.startedAt) {
			r.spent.used[budgetWall] = float64(r.now.Sub(r.startedAt))
		}
		r.markTold()
	}
	r.spent.remember(past.Open, limits(&r.set.policy.Budget))
}

func (r *run) resumeAges(past *observer.RunPast) {
	for _, d := range []struct {
		due   *due
		rule  string
		last  time.Time
		after ckpt.Duration
	}{
		{&r.routine, RuleStaleCheckpoint, past.LastRoutine, r.set.policy.CheckpointInterval},
		{&r.refresh, RuleContextAge, past.LastRefresh, r.set.policy.RefreshAfter},
	} {
		*d.due = due{since: later(past.StartedAt, d.last), after: r.set.rules[d.rule].interval(d.after)}
		told := past.Dismissed[d.rule]
		for i := range past.Open {
			if past.Open[i].Rule == d.rule {
				told = later(told, past.Open[i].At.Time)
			}
		}
		if told.After(d.due.since) {
			d.due.overdue(told.Add(time.Second))
		}
	}
}
