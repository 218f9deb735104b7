package drift

import (
	"fmt"
	"slices"

	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
)

// retyped finds top-level values with another JSON type than before. Changes
// from and to null do not count.
func (r *run) retyped(found []observer.Found, p *observer.StatePrint, _ setting) []observer.Found {
	var changed []string
	for key, is := range p.Keys {
		if was := r.states.types[key]; was != "" && is != "null" && was != is {
			changed = append(changed, key)
		}
	}
	slices.Sort(changed)
	for _, key := range changed {
		was, is := r.states.types[key], p.Keys[key]
		f := r.stateFound(RuleTypeChanged, p, pointerTo(key))
		f.Evidence.Threshold, f.Evidence.Observed = was, is
		f.Message = fmt.Sprintf("%q in the state was %s, and is %s after %s.", phrase.Cut(key), phrase.Article(was),
			phrase.Article(is), phrase.Count(int(r.states.count), "checkpoint"))
		f.Advice = fmt.Sprintf("%q in your state was %s, and is %s after %s. Restore the right type before you continue.",
			phrase.Cut(key), phrase.Article(was), phrase.Article(is), phrase.Count(int(r.states.count), "checkpoint"))
		found = append(found, f)
		if len(found) >= maxNamed {
			break
		}
	}
	return found
}
