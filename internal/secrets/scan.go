package secrets

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// most is how many secrets of one state are named, mostSeen of how many it is
// remembered where they are.
const (
	most     = 16
	mostSeen = 256
)

// replacement is what stands in the place of a secret.
const replacement = "[redacted]"

// Scan looks for secrets. It has no state.
type Scan struct{}

// Find answers the first few secrets of a state. A JSON state must have been
// checked before.
func (Scan) Find(state []byte, json bool) []Secret {
	hits, _ := look(state, json, nil, mostSeen)
	return named(state, json, nil, first(hits, most))
}

// Redact answers the state with every secret replaced, and the first few.
func (Scan) Redact(state []byte, json bool) ([]byte, []Secret) {
	hits, _ := look(state, json, nil, len(state))
	if hits = first(hits, len(hits)); len(hits) == 0 {
		return state, nil
	}
	out := make([]byte, 0, len(state))
	at := 0
	for _, h := range hits {
		out = append(append(out, state[at:h.from]...), replacement...)
		at = h.to
	}
	return append(out, state[at:]...), named(state, json, nil, hits[:min(most, len(hits))])
}

// look answers the secrets of a state outside of what was passed over: those
// under a name from a walk over the keys, those of a shape from a search of the
// bytes, since a token has no character that JSON would escape (but a private
// key's line breaks, which do not matter to where it begins and ends). Those of
// a shape may stand inside those under a name. all is false where there are
// more than so many.
func look(state []byte, json bool, passed []jsontext.Copy, atMost int) (hits []hit, all bool) {
	from := 0
	for i := 0; i <= len(passed) && len(hits) <= atMost; i++ {
		to, next := len(state), len(state)
		if i < len(passed) {
			to, next = passed[i].At, passed[i].At+passed[i].Length
		}
		left := atMost + 1 - len(hits)
		shaped := shapesIn(state, from, to, json, left)
		if json {
			hits = append(hits, namesIn(state, from, to, left)...)
		}
		hits = append(hits, shaped...)
		from = next
	}
	return hits, len(hits) <= atMost
}

// namesIn answers the string values whose key stands in state[from:to] and says
// that they are secret.
func namesIn(state []byte, from, to, atMost int) []hit {
	var hits []hit
	for at := from; at < to && len(hits) < atMost; {
		open := bytes.IndexByte(state[at:to], '"')
		if open < 0 {
			return hits
		}
		key := at + open + 1
		end := endOfString(state, key)
		at = end + 1
		next := skipSpace(state, at)
		if next >= len(state) || state[next] != ':' {
			continue
		}
		kind := secretName(state[key:end])
		if kind == "" {
			continue
		}
		value := skipSpace(state, next+1)
		if value >= len(state) || state[value] != '"' {
			continue
		}
		at = endOfString(state, value+1) + 1
		if realValue(state[value+1 : at-1]) {
			hits = append(hits, hit{key, value + 1, at - 1, kind})
		}
	}
	return hits
}

// endOfString answers where the string that begins at from has its closing quote.
func endOfString(s []byte, from int) int {
	for i := from; ; {
		j := bytes.IndexByte(s[i:], '"')
		if j < 0 {
			return len(s)
		}
		end := i + j
		slashes := 0
		for end-1-slashes >= from && s[end-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return end
		}
		i = end + 1
	}
}

func skipSpace(s []byte, i int) int {
	for i < len(s) && (s[i] == ' ' || s[i] == '\n' || s[i] == '\t' || s[i] == '\r') {
		i++
	}
	return i
}

// first puts hits in order, drops those inside another, and answers the first
// few.
func first(hits []hit, atMost int) []hit {
	slices.SortFunc(hits, func(a, b hit) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.at, b.at)) // of two at one place the one under a name
	})
	var kept []hit
	for _, h := range hits {
		if n := len(kept); n > 0 && h.from < kept[n-1].to {
			continue
		}
		if len(kept) == atMost {
			break
		}
		kept = append(kept, h)
	}
	return kept
}
