package drift

import (
	"fmt"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
)

// lost finds top-level keys that the last checkpoints had and this one does not have.
func (r *run) lost(found []observer.Found, p *observer.StatePrint, set setting) []observer.Found {
	before := r.states.back(int(set.warn.value))
	if before == nil || p.Keys == nil {
		return found
	}
	var gone []string
	for key := range before[0].Keys {
		if _, there := p.Keys[key]; there {
			continue
		}
		always := true
		for i := range before {
			_, there := before[i].Keys[key]
			always = always && there
		}
		if always {
			gone = append(gone, key)
		}
	}
	if len(gone) == 0 {
		return found
	}
	slices.Sort(gone)
	f := r.stateFound(RuleLostKeys, p, pointerTo(gone[0]))
	f.Evidence.Threshold, f.Evidence.Observed = fmt.Sprintf("in the last %s", phrase.Count(len(before), "checkpoint")), named(gone)
	f.Evidence.Window = len(before)
	for _, key := range gone[:min(len(gone), ckpt.MaxEvidence)] {
		f.Evidence.Pointers = append(f.Evidence.Pointers, pointerTo(key))
	}
	f.Message = fmt.Sprintf("The state has lost %s that the last %s had: %s.", phrase.Count(len(gone), "top-level key"),
		phrase.Count(len(before), "checkpoint"), named(gone))
	f.Advice = fmt.Sprintf("Your state has lost %s: %s. Copy it from the previous checkpoint, or say that it is no "+
		"longer needed.", phrase.Count(len(gone), "key"), named(gone))
	return append(found, f)
}
