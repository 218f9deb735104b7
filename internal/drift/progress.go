package drift

import (
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// progress is what the run has declared of how far it is.
type progress struct {
	declared   bool
	best, last float64
	grewAt     time.Time
	grewStep   int64 // how many steps had ended when it last grew
	grewSeq    int64 // the run's newest checkpoint then
	declareds  int64
	told       ckpt.Severity // of no_progress, since it last grew
}

// declare takes in a declared progress, and says whether it grew or fell.
func (p *progress) declare(value float64, now time.Time, step, seq int64) (grew, fell bool, before float64) {
	grew, fell, before = !p.declared || value > p.best, p.declared && value < p.last, p.last
	p.declared, p.last = true, value
	p.declareds++
	if grew {
		p.best, p.grewAt, p.grewStep, p.grewSeq, p.told = value, now, step, seq, ""
	}
	return grew, fell, before
}

// declared takes in what a step or a heartbeat says of progress.
func (r *run) declared(found []ckpt.Found, value *float64, now time.Time, key string) []ckpt.Found {
	if value == nil {
		return found
	}
	grew, fell, before := r.progress.declare(*value, now, r.ended, r.seq)
	if grew {
		r.grew = r.steps.steps // the repeat rules count from here
	}
	set := r.set.rules[RuleProgressReversed]
	if !fell || set.off || !r.tells(RuleProgressReversed, set.one, r.progress.declareds, set.cooldown) {
		return found
	}
	return append(found, ckpt.Found{
		Rule: RuleProgressReversed, Severity: set.one, SinceSeq: r.seq,
		Message:  sentence("The declared progress fell from %s to %s.", figure(before), figure(*value)),
		Advice:   sentence("Your progress fell from %s to %s. Check whether work was lost, and declare progress over the whole run, so that it only grows.", figure(before), figure(*value)),
		Evidence: ckpt.Evidence{Threshold: sentence("not less than %s", figure(before)), Observed: figure(*value), Steps: keysOf(key)},
	})
}

// stalled finds that declared progress has not grown for long.
func (r *run) stalled(found []ckpt.Found, now time.Time, key string) []ckpt.Found {
	set, p := r.set.rules[RuleNoProgress], &r.progress
	if set.off || !p.declared {
		return found
	}
	steps, spent := r.ended-p.grewStep, now.Sub(p.grewAt)
	share := max(over(float64(steps), float64(r.set.policy.NoProgressSteps)), over(float64(spent), float64(r.set.policy.NoProgressTime)))
	severity, need := set.tierOf(share)
	if rank(severity) <= rank(p.told) {
		return found
	}
	p.told = severity
	return append(found, ckpt.Found{
		Rule: RuleNoProgress, Severity: severity, SinceSeq: p.grewSeq,
		Message: sentence("The declared progress has stood at %s for %s and %s.", figure(p.best), count(int(steps), "step"), spentText(spent)),
		Advice:  sentence("Your progress has stood at %s for %s. Say what blocks it, and take another way or ask for help.", figure(p.best), count(int(steps), "step")),
		Evidence: ckpt.Evidence{
			Threshold: sentence("%s × %s", figure(need), stallLimit(r.set.policy)),
			Observed:  sentence("%s, %s", count(int(steps), "step"), spentText(spent)), Window: int(steps), Steps: keysOf(key),
		},
	})
}

// tierOf is the highest tier that a value reaches, and what it needs.
func (s setting) tierOf(value float64) (ckpt.Severity, float64) {
	switch {
	case s.critical.value > 0 && value >= s.critical.value:
		return s.capped(ckpt.SeverityCritical), s.critical.value
	case s.warn.value > 0 && value >= s.warn.value:
		return ckpt.SeverityWarn, s.warn.value
	}
	return "", 0
}

// over is a share of a limit, 0 where there is none.
func over(value, limit float64) float64 {
	if limit <= 0 {
		return 0
	}
	return value / limit
}

func stallLimit(p *ckpt.Policy) string {
	switch {
	case p.NoProgressSteps > 0 && p.NoProgressTime > 0:
		return sentence("(%s or %s)", count(int(p.NoProgressSteps), "step"), p.NoProgressTime)
	case p.NoProgressSteps > 0:
		return count(int(p.NoProgressSteps), "step")
	}
	return p.NoProgressTime.String()
}

func keysOf(key string) []string {
	if key == "" {
		return nil
	}
	return []string{key}
}
