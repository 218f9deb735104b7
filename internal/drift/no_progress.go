package drift

import (
	"fmt"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
)

// stalled finds that declared progress has not grown for too long.
func (r *run) stalled(found []observer.Found, now time.Time, key string) []observer.Found {
	p := &r.progress
	if !p.declared {
		return found
	}
	set := r.set.rules[RuleNoProgress]
	if set.off {
		return found
	}
	steps, spent := r.ended-p.grewStep, now.Sub(p.grewAt)
	share := max(over(float64(steps), float64(r.set.policy.NoProgressSteps)), over(float64(spent), float64(r.set.policy.NoProgressTime)))
	severity, need := set.tierOf(share)
	if severity.Rank() <= p.told.Rank() {
		return found
	}
	p.told = severity
	return append(found, observer.Found{
		Rule: RuleNoProgress, Severity: severity, SinceSeq: p.grewSeq,
		Message: fmt.Sprintf("The declared progress has stayed at %s for %s and %s.", phrase.Figure(p.best),
			phrase.Count(int(steps), "step"), spentText(spent)),
		Advice: fmt.Sprintf("Your progress has stayed at %s for %s. State what blocks it, and try another approach or ask for help.",
			phrase.Figure(p.best), phrase.Count(int(steps), "step")),
		Evidence: ckpt.Evidence{
			Threshold: fmt.Sprintf("%s × %s", phrase.Figure(need), stallLimit(r.set.policy)),
			Observed:  fmt.Sprintf("%s, %s", phrase.Count(int(steps), "step"), spentText(spent)), Window: int(steps), Steps: keysOf(key),
		},
	})
}

func stallLimit(p *ckpt.Policy) string {
	switch {
	case p.NoProgressSteps > 0 && p.NoProgressTime > 0:
		return fmt.Sprintf("(%s or %s)", phrase.Count(int(p.NoProgressSteps), "step"), p.NoProgressTime)
	case p.NoProgressSteps > 0:
		return phrase.Count(int(p.NoProgressSteps), "step")
	}
	return p.NoProgressTime.String()
}
