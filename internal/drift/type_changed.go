package drift

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
)

// retyped finds top-level values with another JSON type than before. Changes
// from and to null do not count, and neither does a change back.
func (r *run) retyped(found []observer.Found, p *observer.StatePrint, _ setting) []observer.Found {
	var changed []string
	for key, is := range p.Keys {
		was := r.states.types[key]
		switch {
		case was == "" || is == "null" || was == is:
		case is == r.states.former[key]:
			delete(r.states.former, key)
		default:
			changed = append(changed, key)
		}
	}
	slices.Sort(changed)
	for _, key := range changed {
		was, is := cmp.Or(r.states.former[key], r.states.types[key]), p.Keys[key]
		r.states.changed(key, was)
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

// changed remembers the type of a value before it changed.
func (s *states) changed(key, was string) {
	if s.former == nil {
		s.former = map[string]string{}
	}
	if len(s.former) < maxTypes {
		s.former[key] = was
	}
}
