package drift

import (
	"fmt"
	"slices"

	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
)

// reversed finds numbers that fell after they had only grown.
func (r *run) reversed(found []observer.Found, p *observer.StatePrint, set setting) []observer.Found {
	before := r.states.back(int(set.warn.value))
	if before == nil {
		return found
	}
	last := before[len(before)-1].Counters
	var fell []string
	for pointer, to := range p.Counters {
		if from, had := last[pointer]; had && to < from && onlyGrew(before, pointer) {
			fell = append(fell, pointer)
		}
	}
	slices.Sort(fell)
	for _, pointer := range fell {
		from := last[pointer]
		f := r.stateFound(RuleCounterReversed, p, pointer)
		f.Evidence.Threshold, f.Evidence.Observed = notLess+phrase.Figure(from), phrase.Figure(p.Counters[pointer])
		f.Evidence.Window = len(before)
		f.Message = fmt.Sprintf("%s in the state only grew over the last %s, to %s, and fell to %s.", phrase.Cut(pointer),
			phrase.Count(len(before), "checkpoint"), phrase.Figure(from), phrase.Figure(p.Counters[pointer]))
		f.Advice = fmt.Sprintf("%s in your state fell from %s to %s. If you went back on purpose, continue. If not, your "+
			"state is an old one.", phrase.Cut(pointer), phrase.Figure(from), phrase.Figure(p.Counters[pointer]))
		found = append(found, f)
		if len(found) >= maxNamed {
			break
		}
	}
	return found
}

// onlyGrew reports whether a number never fell over the checkpoints, and was unchanged
// between two of them at most once.
func onlyGrew(over []observer.StatePrint, pointer string) bool {
	still := 0
	for i := 1; i < len(over); i++ {
		from, had := over[i-1].Counters[pointer]
		to, has := over[i].Counters[pointer]
		if !had || !has || to < from {
			return false
		}
		still += b2i(to == from)
	}
	return still <= 1
}
