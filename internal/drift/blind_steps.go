package drift

import (
	"fmt"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
)

// blind counts the newest steps in which no loop could be seen.
type blind struct {
	mute  int64 // steps in a row without known arguments
	fresh int64 // steps in a row with a name that did not come shortly before
	told  bool
}

// isBlind finds that the steps say too little for the rules about repetition.
func (r *run) isBlind(found []observer.Found, p *observer.StepPrint) []observer.Found {
	b, set := &r.blind, r.set.rules[RuleBlindSteps]
	if set.off {
		return found
	}
	b.mute, b.fresh = b.mute+1, b.fresh+1
	if p.Sig != "" && p.Sig != observer.UnknownCall {
		b.mute = 0
	}
	for i := 1; i < min(r.steps.len(), int(set.warn.value)); i++ {
		if r.steps.last(i).tool == p.Tool {
			b.fresh = 0
			break
		}
	}
	what, n := "no arguments", b.mute
	if b.fresh > b.mute {
		what, n = "a name that no step before had", b.fresh
	}
	if float64(n) < set.warn.value {
		b.told = false
		return found
	}
	if b.told {
		return found
	}
	b.told = true
	return append(found, observer.Found{
		Rule: RuleBlindSteps, Severity: set.one,
		Message: fmt.Sprintf("The last %s had %s: loops cannot be seen in them.", phrase.Count(int(n), "step"), what),
		Advice:  "Loops cannot be seen: give steps a name and arguments.",
		Evidence: ckpt.Evidence{Threshold: phrase.Count(int(set.warn.value), "step"), Observed: phrase.Count(int(n), "step"), Window: int(set.warn.value),
			Steps: keysOf(p.Key)},
	})
}
