package secrets

import (
	"encoding/binary"
	"strings"
)

// mode is how to search a text: either JSON, of which the strings are searched, or
// anything else.
type mode struct {
	json  bool
	pairs [1 << 16 / 64]uint64 // a bit for each pair of bytes by which something can be found
	rules [1 << 16]uint8       // for such a pair, the index of its rules in lists
	lists [][]anchored
}

// anchored is a rule that is found by two bytes of its mark: the rarest two.
type anchored struct {
	*rule
	offset int
}

var inJSON, inText = newMode(true), newMode(false)

func newMode(json bool) *mode {
	m := &mode{json: json, lists: [][]anchored{nil}}
	for i := range rules {
		r := &rules[i]
		offset := rarest(r.mark)
		p := pairOf(r.mark[offset], r.mark[offset+1])
		if m.rules[p] == 0 {
			m.rules[p] = uint8(len(m.lists))
			m.lists = append(m.lists, nil)
		}
		m.lists[m.rules[p]] = append(m.lists[m.rules[p]], anchored{r, offset})
		m.add(p)
	}
	for n := range names {
		c := n[len(n)-1]
		for _, last := range [...]byte{c, c - 'a' + 'A'} {
			m.add(pairOf(last, '='))
			m.add(pairOf(last, ':'))
		}
	}
	for _, two := range []string{" =", ":=", "':", "'=", "`:", ":/"} {
		m.add(pairOf(two[0], two[1]))
	}
	if json {
		for _, two := range []string{`\u`, `\/`} {
			m.add(pairOf(two[0], two[1]))
		}
	} else {
		m.add(pairOf('"', ':'))
		m.add(pairOf('"', '='))
	}
	return m
}

func (m *mode) add(pair uint16) { m.pairs[pair>>6] |= 1 << (pair & 63) }

func pairOf(a, b byte) uint16 { return uint16(a) | uint16(b)<<8 }

// rarest returns the place of the two bytes of a mark that are rarest in ordinary text.
func rarest(mark string) (at int) {
	least := 100
	for i := range len(mark) - 1 {
		if c := common(mark[i]) + common(mark[i+1]); c < least {
			at, least = i, c
		}
	}
	return at
}

func common(c byte) int {
	switch {
	case c == ' ' || strings.IndexByte("etaoinsr", c) >= 0:
		return 5
	case strings.IndexByte("jqvxz", c) >= 0:
		return 1
	case c >= 'a' && c <= 'z' || c == '.':
		return 3
	case c == '_':
		return 2
	}
	return 1
}

// is returns in its lowest bit whether something can be found by the two lowest bytes.
func (m *mode) is(two uint64) uint64 { return m.pairs[two>>6&1023] >> (two & 63) }

// next returns the first place from i on where something can be found, or at least to if
// there is none. It checks eight places at once.
func (m *mode) next(text []byte, i, to int) int {
	for ; i+9 <= len(text) && i < to; i += 8 {
		w := binary.LittleEndian.Uint64(text[i:])
		last := w>>56 | uint64(text[i+8])<<8
		if (m.is(w)|m.is(w>>8)|m.is(w>>16)|m.is(w>>24)|m.is(w>>32)|m.is(w>>40)|m.is(w>>48)|m.is(last))&1 != 0 {
			break
		}
	}
	for ; i+1 < len(text) && i < to; i++ {
		if m.is(uint64(text[i])|uint64(text[i+1])<<8)&1 != 0 {
			return i
		}
	}
	return to
}

// find returns the secrets whose places are in text[from:to], in order, at most the
// given number.
func (m *mode) find(text []byte, from, to, most int) []hit {
	var hits []hit
	for i := m.next(text, from, to); i < to && len(hits) < most; i = m.next(text, i, to) {
		if m.json && text[i] == '\\' {
			if !needless(text, i) {
				i++
				continue
			}
			begin, end := stringAround(text, i)
			hits = append(hits, decoded(text, begin, end, i)...)
			i = end
			continue
		}
		h, found := m.at(text, i)
		if i++; !found {
			continue
		}
		h.at = i - 1
		hits = append(hits, h)
		// The inside of a long hit need not be searched again. Where this stops must not
		// depend on where it began.
		i = runOfValue(text, i, max(i, h.to))
	}
	return hits
}

// at returns what is found by the two bytes at a place.
func (m *mode) at(text []byte, i int) (hit, bool) {
	c := text[i+1]
	if (c == '=' || c == ':') && text[i] != ':' {
		if m.mayName(text, i) {
			return assigned(text, i+1, m.json)
		}
		return hit{}, false
	}
	for _, r := range m.lists[m.rules[pairOf(text[i], c)]] {
		if h, found := r.tokenAt(text, i-r.offset, m.json); found {
			return h, true
		}
	}
	switch {
	case c == '/' && text[i] == ':':
		return inURL(text, i)
	case c == '=' && i > 0 && m.mayName(text, i-1): // :=
		return assigned(text, i, m.json)
	}
	return hit{}, false
}

// mayName reports whether the name of a secret can end with the byte at a place, judging
// by its last letters.
func (m *mode) mayName(text []byte, i int) bool {
	for i > 2 && !alphanumeric(text[i]) {
		switch text[i] {
		case ' ', '"', '\'', '`', '\\':
			i--
			continue
		}
		return false
	}
	if i < 2 {
		return false
	}
	t := triple(text[i-2], text[i-1], text[i])
	return endings[t>>6]>>(t&63)&1 != 0
}
