package drift

import (
	"fmt"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
)

// declared takes the progress that a step or a heartbeat declares.
func (r *run) declared(found []observer.Found, value *float64, now time.Time, key string) []observer.Found {
	if value == nil {
		return found
	}
	grew, fell, before := r.progress.declare(*value, now, r.ended, r.seq)
	if *value >= r.progress.fellFrom { // it has recovered, so that another fall is reported
		delete(r.spells, RuleProgressReversed)
	}
	if grew {
		r.grew = r.steps.steps // the repeat rules count from here
	}
	if fell {
		r.progress.fellFrom = before
	}
	set := r.set.rules[RuleProgressReversed]
	if !fell || set.off || !r.tells(RuleProgressReversed, set.one, r.progress.declareds, set.cooldown) {
		return found
	}
	return append(found, observer.Found{
		Rule: RuleProgressReversed, Severity: set.one, SinceSeq: r.seq,
		Message: fmt.Sprintf("The declared progress fell from %s to %s.", phrase.Figure(before), phrase.Figure(*value)),
		Advice: fmt.Sprintf("Your progress fell from %s to %s. Check whether work was lost, and declare progress over "+
			"the whole run, so that it only grows.", phrase.Figure(before), phrase.Figure(*value)),
		Evidence: ckpt.Evidence{
			Threshold: notLess + phrase.Figure(before),
			Observed:  phrase.Figure(*value), Steps: keysOf(key),
		},
	})
}
