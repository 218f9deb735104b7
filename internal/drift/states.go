package drift

import (
	"maps"
	"slices"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// How the size of a state is judged. Of fewer states than leastSizes there is
// no median, and smaller states than leastBytes may change as they like.
const (
	shrinkTo   = 0.5
	leastSizes = 3
	leastBytes = 64
)

// maxNamed is how many names a message has at most; the evidence has the first.
const maxNamed = 8

// states is what the newest checkpoints were like, newest last.
type states struct {
	count  int64
	newest []ckpt.StatePrint
	types  map[string]string // of every top-level value, as it last was and was not null
}

const maxTypes = 4096

// add takes in a checkpoint; depth is how many are looked at.
func (s *states) add(p ckpt.StatePrint, depth int) {
	s.count++
	p.Broken = nil
	if len(s.newest) >= depth {
		s.newest = append(s.newest[:0], s.newest[len(s.newest)-depth+1:]...)
	}
	s.newest = append(s.newest, p)
	for key, kind := range p.Keys {
		if kind != "null" && (len(s.types) < maxTypes || s.types[key] != "") {
			if s.types == nil {
				s.types = map[string]string{}
			}
			s.types[key] = kind
		}
	}
}

// back is the newest n checkpoints, nil where there are fewer.
func (s *states) back(n int) []ckpt.StatePrint {
	if n < 1 || len(s.newest) < n {
		return nil
	}
	return s.newest[len(s.newest)-n:]
}

// depth is how many checkpoints the rules look back.
func (s *settings) depth() int {
	size, lost, counter := s.rules[RuleCheckpointSize], s.rules[RuleLostKeys], s.rules[RuleCounterReversed]
	return max(size.warn.window, int(lost.warn.value), int(counter.warn.value), leastSizes)
}

// stateFound is the part that all findings of states have.
func (r *run) stateFound(rule string, p *ckpt.StatePrint, pointer string) ckpt.Found {
	f := ckpt.Found{Rule: rule, Severity: r.set.rules[rule].one, Evidence: ckpt.Evidence{Pointer: pointer}}
	if before := r.states.back(1); before != nil {
		f.SinceSeq = before[0].Seq
		f.Evidence.Checkpoints = append(f.Evidence.Checkpoints, before[0].ID)
	}
	f.Evidence.Checkpoints = append(f.Evidence.Checkpoints, p.ID)
	return f
}

// changed is what a checkpoint has that the ones before did not, or the other
// way round.
func (r *run) changed(found []ckpt.Found, p *ckpt.StatePrint) []ckpt.Found {
	for _, look := range []struct {
		rule string
		look func(*run, []ckpt.Found, *ckpt.StatePrint, setting) []ckpt.Found
	}{{RuleCheckpointSize, (*run).resized}, {RuleLostKeys, (*run).lost}, {RuleTypeChanged, (*run).retyped}, {RuleCounterReversed, (*run).reversed}} {
		if set := r.set.rules[look.rule]; !set.off {
			found = look.look(r, found, p, set)
		}
	}
	return found
}

// resized finds a state that is much smaller than the one before, or much
// larger than they were.
func (r *run) resized(found []ckpt.Found, p *ckpt.StatePrint, set setting) []ckpt.Found {
	before := r.states.back(1)
	if before == nil {
		return found
	}
	last := before[0].Size
	sizes := make([]int64, 0, set.warn.window)
	for i := max(0, len(r.states.newest)-set.warn.window); i < len(r.states.newest); i++ {
		sizes = append(sizes, r.states.newest[i].Size)
	}
	slices.Sort(sizes)
	median := sizes[len(sizes)/2]
	f := r.stateFound(RuleCheckpointSize, p, "")
	f.Evidence.Window = len(sizes)
	switch {
	case last >= leastBytes && float64(p.Size) < shrinkTo*float64(last):
		f.Message = sentence("The state shrank from %s to %s, by more than half.", byteText(last), byteText(p.Size))
		f.Advice = sentence("Your state shrank from %s to %s. Check that nothing was lost; the checkpoint before has it all.", byteText(last), byteText(p.Size))
		f.Evidence.Threshold, f.Evidence.Observed = sentence("at least %s", byteText(int64(shrinkTo*float64(last)))), byteText(p.Size)
	case len(sizes) >= leastSizes && p.Size >= leastBytes && float64(p.Size) > set.warn.value*float64(median):
		f.Message = sentence("The state grew to %s, more than %s times the median of %s over the last %s.", byteText(p.Size), figure(set.warn.value), byteText(median), count(len(sizes), "checkpoint"))
		f.Advice = sentence("Your state grew to %s, and was %s before. Leave out what is not needed to go on.", byteText(p.Size), byteText(median))
		f.Evidence.Threshold, f.Evidence.Observed = sentence("at most %s times %s", figure(set.warn.value), byteText(median)), byteText(p.Size)
	default:
		return found
	}
	return append(found, f)
}

// lost finds top-level keys that the last checkpoints had and this one has not.
func (r *run) lost(found []ckpt.Found, p *ckpt.StatePrint, set setting) []ckpt.Found {
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
	f.Evidence.Threshold, f.Evidence.Observed = sentence("in the last %s", count(len(before), "checkpoint")), named(gone)
	f.Evidence.Window = len(before)
	f.Message = sentence("The state has lost %s that the last %s had: %s.", count(len(gone), "top-level key"), count(len(before), "checkpoint"), named(gone))
	f.Advice = sentence("Your state has lost %s: %s. Take it from the checkpoint before, or say that it is no longer needed.", count(len(gone), "key"), named(gone))
	return append(found, f)
}

// retyped finds top-level values of another JSON type than before. null is no
// type: what was null may become anything, and anything null.
func (r *run) retyped(found []ckpt.Found, p *ckpt.StatePrint, _ setting) []ckpt.Found {
	for _, key := range slices.Sorted(maps.Keys(p.Keys)) {
		was, is := r.states.types[key], p.Keys[key]
		if was == "" || is == "null" || was == is {
			continue
		}
		f := r.stateFound(RuleTypeChanged, p, pointerTo(key))
		f.Evidence.Threshold, f.Evidence.Observed = was, is
		f.Message = sentence("%q in the state was %s, and is %s after %s.", cut(key), article(was), article(is), count(int(r.states.count), "checkpoint"))
		f.Advice = sentence("%q in your state was %s, and is %s after %s. Put the right value there before you go on.", cut(key), article(was), article(is), count(int(r.states.count), "checkpoint"))
		found = append(found, f)
		if len(found) >= maxNamed {
			break
		}
	}
	return found
}

// reversed finds numbers that had only grown and fell.
func (r *run) reversed(found []ckpt.Found, p *ckpt.StatePrint, set setting) []ckpt.Found {
	before := r.states.back(int(set.warn.value))
	if before == nil {
		return found
	}
	for _, pointer := range slices.Sorted(maps.Keys(p.Counters)) {
		from, had := before[len(before)-1].Counters[pointer]
		if !had || p.Counters[pointer] >= from || !onlyGrew(before, pointer) {
			continue
		}
		f := r.stateFound(RuleCounterReversed, p, pointer)
		f.Evidence.Threshold, f.Evidence.Observed = sentence("not less than %s", figure(from)), figure(p.Counters[pointer])
		f.Evidence.Window = len(before)
		f.Message = sentence("%s in the state only grew over the last %s, to %s, and fell to %s.", cut(pointer), count(len(before), "checkpoint"), figure(from), figure(p.Counters[pointer]))
		f.Advice = sentence("%s in your state fell from %s to %s. If you went back on purpose, go on; if not, your state is an old one.", cut(pointer), figure(from), figure(p.Counters[pointer]))
		found = append(found, f)
		if len(found) >= maxNamed {
			break
		}
	}
	return found
}

// onlyGrew says whether a number never fell over checkpoints, and stood still
// between two of them at most once.
func onlyGrew(over []ckpt.StatePrint, pointer string) bool {
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

// pointerTo is the JSON pointer to a top-level key.
func pointerTo(key string) string {
	return "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}

// named lists names, the first of them where they are many.
func named(names []string) string {
	quoted := make([]string, 0, maxNamed)
	for _, name := range names[:min(len(names), maxNamed)] {
		quoted = append(quoted, sentence("%q", cut(name)))
	}
	list := strings.Join(quoted, ", ")
	if more := len(names) - maxNamed; more > 0 {
		list += sentence(" and %d more", more)
	}
	return list
}
