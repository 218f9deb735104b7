package secrets

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// most is how many secrets of one state are named. mostSeen is the most secrets whose
// places are remembered.
const (
	most     = 16
	mostSeen = 256
)

// Scan looks for secrets. It has no state.
type Scan struct{}

// Find returns the first few secrets of a state. A JSON state must already have been
// checked.
func (Scan) Find(state []byte, json bool) []Secret {
	hits, _ := look(state, json, nil, mostSeen)
	return named(state, json, nil, first(hits, most))
}

// Redact returns the state with every secret replaced, and the first few secrets.
func (Scan) Redact(state []byte, json bool) ([]byte, []Secret) {
	hits, _ := look(state, json, nil, len(state))
	if hits = first(hits, len(hits)); len(hits) == 0 {
		return state, nil
	}
	out := make([]byte, 0, len(state))
	at := 0
	for _, h := range hits {
		out = append(append(out, state[at:h.from]...), replaced...)
		at = h.to
	}
	return append(out, state[at:]...), named(state, json, nil, hits[:min(most, len(hits))])
}

// look returns the secrets of a state outside the passed parts. A walk over the keys
// finds those under a key, and a search of the bytes finds those in text. A secret in
// text can be inside one under a key. all is false if there are more than atMost.
func look(state []byte, json bool, passed []jsontext.Copy, atMost int) (hits []hit, all bool) {
	m := inText
	if json {
		m = inJSON
	}
	from := 0
	for i := 0; i <= len(passed) && len(hits) <= atMost; i++ {
		to, next := len(state), len(state)
		if i < len(passed) {
			to, next = passed[i].At, passed[i].At+passed[i].Length
		}
		left := atMost + 1 - len(hits)
		found := m.find(state, from, to, left)
		if json {
			hits = append(hits, namesIn(state, from, to, left)...)
		}
		hits = append(hits, found...)
		from = next
	}
	return hits, len(hits) <= atMost
}

// namesIn returns the string values whose key is in state[from:to] and says that they
// are secret. It finds them in the document, and in JSON inside the document's strings.
func namesIn(state []byte, from, to, atMost int) []hit {
	var hits []hit
	for at := from; at < to && len(hits) < atMost; {
		open := bytes.IndexByte(state[at:to], '"')
		if open < 0 {
			return hits
		}
		key := at + open + 1
		end := key
		for {
			var escaped bool
			if end, escaped = nextQuote(state, end, key); !escaped {
				break
			}
			if h, found := innerName(state, end); found && len(hits) < atMost {
				h.at = end
				hits = append(hits, h)
			}
			end++
		}
		at = end + 1
		next := jsontext.SkipSpace(state, at)
		if next >= len(state) || state[next] != ':' {
			continue
		}
		n := secretName(undoneKey(state[key:end]))
		if n.sure == never {
			continue
		}
		value := jsontext.SkipSpace(state, next+1)
		if value >= len(state) || state[value] != '"' {
			continue
		}
		if to := endOfString(state, value+1); n.isSecret(state[value+1 : to]) {
			hits = append(hits, hit{key, value + 1, to, n.kind})
			at = to + 1
		}
	}
	return hits
}

// innerName returns the value of a key of JSON inside a string. quote is the place of
// the key's closing quote, which is escaped.
func innerName(state []byte, quote int) (hit, bool) {
	at := quote + 1
	for at < len(state) && state[at] == ' ' && at < quote+3 {
		at++
	}
	if at >= len(state) || state[at] != ':' {
		return hit{}, false
	}
	return assigned(state, at, true)
}

// first sorts hits, drops those inside another hit, and returns at most atMost.
func first(hits []hit, atMost int) []hit {
	slices.SortFunc(hits, func(a, b hit) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.at, b.at)) // at one place the one under a name comes first
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
