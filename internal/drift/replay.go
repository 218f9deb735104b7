package drift

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
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
	r.states.former = nil // what is not mended is in the open findings; the oldest states may be gone
	for _, state := range past.Entered {
		r.Enter(time.Time{}, state, nil)
	}
	r.goal = goal{first: past.Goal}
	r.goal.remember(past.DroppedGoal)
	for i := range past.Open {
		switch past.Open[i].Rule {
		case RuleGoalChanged:
			r.goal.remember(past.Open[i].Evidence)
		case RuleTypeChanged:
			var e ckpt.Evidence
			if json.Unmarshal(past.Open[i].Evidence, &e) == nil {
				r.states.changed(keyOf(e.Pointer), e.Threshold)
			}
		}
	}
	r.resumeOwn(past)
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

// resumeOwn restores the cooldowns of the user's rules and of the schema, which are not
// stored with steps and states: from their findings and from dismissals.
func (r *run) resumeOwn(past *observer.RunPast) {
	own := map[string]ckpt.Rule{
		RuleSchema:        {Severity: ckpt.SeverityCritical},
		RuleSchemaStopped: {Severity: ckpt.SeverityWarn},
	}
	for _, rule := range r.set.policy.Rules {
		own[rule.Name] = rule
	}
	for i := range past.Open {
		f := &past.Open[i]
		if rule, known := own[f.Rule]; known && (rule.When == "" || isAbout(f, &rule)) {
			r.resumeSpell(past, f.Rule, f.Severity, f.At.Time)
		}
	}
	for name, at := range past.Dismissed {
		if rule, known := own[name]; known {
			r.resumeSpell(past, name, rule.Severity, at)
		}
	}
}

// isAbout reports whether a finding is about a rule as the policy has it now.
func isAbout(f *ckpt.Finding, rule *ckpt.Rule) bool {
	var e ckpt.Evidence
	return json.Unmarshal(f.Evidence, &e) == nil && (e.Threshold == phrase.Cut(rule.When) || f.Severity == ckpt.SeverityWarn && e.Observed != "true")
}

// resumeSpell restores that a rule was reported, or its finding dismissed, at a time. It
// is unknown whether the rule has held since then; it is taken to.
func (r *run) resumeSpell(past *observer.RunPast, rule string, severity ckpt.Severity, at time.Time) {
	set, known := r.set.rules[rule]
	if !known {
		set = r.set.own(rule)
	}
	severity = set.capped(severity)
	step, _ := r.placeAt(past, at)
	state := r.states.count
	for i := len(past.States) - 1; i >= 0 && past.States[i].At.After(at); i-- {
		state--
	}
	r.tells(rule, severity, step, set.cooldown)
	r.tells(rule+ofStates, severity, state, set.cooldown)
	r.spells[rule].heldAt, r.spells[rule+ofStates].heldAt = r.ended, r.states.count
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
