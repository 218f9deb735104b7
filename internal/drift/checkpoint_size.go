package drift

import (
	"fmt"
	"slices"

	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
)

// How the size of a state is judged. A median needs leastSizes states. States smaller
// than leastBytes are not judged.
const (
	shrinkTo   = 0.5
	leastSizes = 3
	leastBytes = 64
)

// resized finds a state that is much smaller than the previous one, or much larger than
// the previous ones. A state that was compacted has not lost anything.
func (r *run) resized(found []observer.Found, p *observer.StatePrint, set setting) []observer.Found {
	before := r.states.back(1)
	if before == nil {
		return found
	}
	last := before[0].Size
	sizes := make([]int64, 0, min(set.warn.window, len(r.states.newest)))
	for i := max(0, len(r.states.newest)-set.warn.window); i < len(r.states.newest); i++ {
		sizes = append(sizes, r.states.newest[i].Size)
	}
	slices.Sort(sizes)
	median := sizes[len(sizes)/2]
	shrank := last >= leastBytes && float64(p.Size) < shrinkTo*float64(last)
	grew := len(sizes) >= leastSizes && p.Size >= leastBytes && float64(p.Size) > set.warn.value*float64(median)
	if !shrank && !grew {
		return found
	}
	f := r.stateFound(RuleCheckpointSize, p, "")
	f.Evidence.Window = len(sizes)
	if shrank {
		if p.Compacted || compacted(&before[0], p) {
			return found
		}
		f.Message = fmt.Sprintf("The state shrank from %s to %s, by more than half.", phrase.Bytes(last), phrase.Bytes(p.Size))
		f.Advice = fmt.Sprintf("Your state shrank from %s to %s. Check that nothing was lost. The previous checkpoint still has everything.",
			phrase.Bytes(last), phrase.Bytes(p.Size))
		f.Evidence.Threshold, f.Evidence.Observed = fmt.Sprintf("at least %s", phrase.Bytes(int64(shrinkTo*float64(last)))), phrase.Bytes(p.Size)
	} else {
		f.Message = fmt.Sprintf("The state grew to %s, more than %s times the median of %s over the last %s.",
			phrase.Bytes(p.Size), phrase.Figure(set.warn.value), phrase.Bytes(median), phrase.Count(len(sizes), "checkpoint"))
		f.Advice = fmt.Sprintf("Your state grew to %s, and was %s before. Leave out what you do not need to continue.",
			phrase.Bytes(p.Size), phrase.Bytes(median))
		f.Evidence.Threshold, f.Evidence.Observed = fmt.Sprintf("at most %s times %s", phrase.Figure(set.warn.value),
			phrase.Bytes(median)), phrase.Bytes(p.Size)
	}
	return append(found, f)
}

// leastTalk is the smallest size of a conversation that counts as partly kept.
const leastTalk = 16

// compacted reports whether only a conversation became shorter, and a part of it was
// kept. Agents do that on purpose when their context is full.
func compacted(before, now *observer.StatePrint) bool {
	if now.Talk < leastTalk || now.Talk >= before.Talk {
		return false
	}
	return float64(now.Size-now.Talk) >= shrinkTo*float64(before.Size-before.Talk)
}
