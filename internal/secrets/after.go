package secrets

import (
	"cmp"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// seen are the hits of a state, by at, those inside another included.
type seen []hit

// Size implements ckpt.SecretsSeen.
func (s seen) Size() int { return 48 * cap(s) }

// FindAfter answers what Find answers of a JSON state. What was passed over are
// whole values and elements: no secret reaches in or out, and only a key that
// stands outside may make one of what is inside. So the hits of what was passed
// over are those that belong to a place inside it.
func (Scan) FindAfter(state []byte, checked ckpt.JSONChecked, before ckpt.SecretsSeen) ([]ckpt.Secret, ckpt.SecretsSeen) {
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
	if !all && len(passed) > 0 { // all anew, so that the answer does not depend on what was before
		hits, all = look(state, true, nil, mostSeen)
	}
	var now ckpt.SecretsSeen
	if all {
		slices.SortFunc(hits, func(a, b hit) int { return cmp.Compare(a.at, b.at) })
		now = seen(slices.Clone(hits))
	}
	return named(state, true, checked.Map, first(hits, most)), now
}

// carried answers the hits of what was passed over, at their new places.
func (s seen) carried(passed []ckpt.Copy) []hit {
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
