package secrets

import (
	"cmp"
	"slices"

	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// seen are the hits of a state, sorted by at. It includes hits inside another hit.
type seen []hit

// Size implements Seen.
func (s seen) Size() int { return 48 * cap(s) }

// FindAfter returns the same as Find for a JSON state. The passed parts are whole
// values and elements. No secret extends into or out of them, and only a key outside
// can make a secret of something inside. So the hits of a passed part are those whose
// place is inside it.
func (Scan) FindAfter(state []byte, checked jsontext.Checked, before Seen) ([]Secret, Seen) {
	old, known := before.(seen)
	passed := checked.Passed
	if !known {
		passed = nil
	}
	hits, all := look(state, true, passed, mostSeen)
	if all {
		hits = append(hits, old.carried(passed)...)
		all = len(hits) <= mostSeen
	}
	if !all && len(passed) > 0 { // search everything again, so that the result does not depend on the state before
		hits, all = look(state, true, nil, mostSeen)
	}
	var now Seen
	if all {
		slices.SortFunc(hits, func(a, b hit) int { return cmp.Compare(a.at, b.at) })
		now = seen(slices.Clone(hits))
	}
	return named(state, true, checked.Map, first(hits, most)), now
}

// seenBytes is seen for a state that is not JSON. It has no hits inside another hit.
type seenBytes []hit

// Size implements Seen.
func (s seenBytes) Size() int { return seen(s).Size() }

// FindBytesAfter returns the same as Find for a state that is not JSON.
func (Scan) FindBytesAfter(state []byte, same []jsontext.Copy, before Seen) ([]Secret, Seen) {
	old, known := before.(seenBytes)
	passed := inside(state, same)
	if !known || hasKey(old) {
		passed = nil
	}
	hits, all := look(state, false, passed, mostSeen)
	if all {
		hits = append(hits, seen(old).carried(passed)...)
		all = len(hits) <= mostSeen
	}
	if len(passed) > 0 && !all {
		hits, all = look(state, false, nil, mostSeen)
	}
	var now Seen
	if hits = first(hits, len(hits)); all {
		now = seenBytes(slices.Clone(hits))
	}
	return named(state, false, nil, hits[:min(most, len(hits))]), now
}

// hasKey reports whether private keys are among the hits. A private key contains
// everything up to its last line, so it can end elsewhere in another state.
func hasKey(hits []hit) bool {
	return slices.ContainsFunc(hits, func(h hit) bool { return h.kind == privateKey })
}

// inside returns the middle of each part that two states have in common. It begins at
// the first byte that no earlier hit can contain. It ends so far before the end of the
// part that every hit found in it ends inside the part.
func inside(state []byte, same []jsontext.Copy) []jsontext.Copy {
	var passed []jsontext.Copy
	for _, c := range same {
		from, to := c.At+reach, c.At+c.Length
		for from < to && plainValue(state[from]) {
			from++
		}
		for to > from && plainValue(state[to-1]) {
			to--
		}
		for to -= reach; to > from && plainValue(state[to-1]); {
			to--
		}
		if to > from {
			passed = append(passed, jsontext.Copy{At: from, From: c.From + from - c.At, Length: to - from})
		}
	}
	return passed
}

// carried returns the hits of the passed parts, at their new places.
func (s seen) carried(passed []jsontext.Copy) []hit {
	if len(s) == 0 {
		return nil
	}
	var hits []hit
	for _, c := range passed {
		i, _ := slices.BinarySearchFunc(s, c.From, func(h hit, from int) int { return cmp.Compare(h.at, from) })
		for ; i < len(s) && s[i].at < c.From+c.Length; i++ {
			h, by := s[i], c.At-c.From
			hits = append(hits, hit{h.at + by, h.from + by, h.to + by, h.kind})
		}
	}
	return hits
}
