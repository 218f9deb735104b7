package secrets

import (
	"bytes"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// most is how many secrets of one state are named.
const most = 16

// replacement is what stands in the place of a secret.
const replacement = "[redacted]"

// Scan implements ckpt.SecretScan.
type Scan struct{}

var _ ckpt.SecretScan = Scan{}

// Find answers the first few secrets of a state. A JSON state must have been
// checked before.
func (Scan) Find(state []byte, json bool) []ckpt.Secret {
	return named(state, json, find(state, json, most))
}

// Redact answers the state with every secret replaced, and the first few.
func (Scan) Redact(state []byte, json bool) ([]byte, []ckpt.Secret) {
	hits := find(state, json, len(state))
	if len(hits) == 0 {
		return state, nil
	}
	out := make([]byte, 0, len(state))
	at := 0
	for _, h := range hits {
		out = append(append(out, state[at:h.from]...), replacement...)
		at = h.to
	}
	return append(out, state[at:]...), named(state, json, hits[:min(most, len(hits))])
}

// find answers the places of secrets in order. Those under a name come from a
// walk over the keys; those of a shape from a search of the bytes, since a
// token has no character that JSON would escape (but a private key's line
// breaks, which do not matter to where it begins and ends).
func find(state []byte, json bool, atMost int) []hit {
	hits := findShapes(state, atMost)
	if json {
		hits = inOrder(append(underNames(state), hits...), atMost)
	}
	return hits
}

// underNames answers the string values whose key says that they are secret.
func underNames(state []byte) []hit {
	var hits []hit
	for at := 0; ; {
		open := bytes.IndexByte(state[at:], '"')
		if open < 0 {
			return hits
		}
		from := at + open + 1
		to := endOfString(state, from)
		at = to + 1
		next := skipSpace(state, at)
		if next >= len(state) || state[next] != ':' {
			continue
		}
		kind := secretName(state[from:to])
		if kind == "" {
			continue
		}
		value := skipSpace(state, next+1)
		if value >= len(state) || state[value] != '"' {
			continue
		}
		end := endOfString(state, value+1)
		if realValue(state[value+1 : end]) {
			hits = append(hits, hit{value + 1, end, kind})
		}
		at = end + 1
	}
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

// named turns places into what may be said of them.
func named(state []byte, json bool, hits []hit) []ckpt.Secret {
	if len(hits) == 0 {
		return nil
	}
	found := make([]ckpt.Secret, len(hits))
	paths := make([]string, len(hits))
	if json {
		paths = pointers(state, hits)
	}
	for i, h := range hits {
		found[i] = ckpt.Secret{Path: paths[i], Kind: h.kind}
	}
	return found
}

// level is an open object or array on the way to a place.
type level struct {
	array bool
	index int
	key   string
}

// pointers answers the JSON pointers of the values in which the hits lie. It is
// walked only where there are any.
func pointers(state []byte, hits []hit) []string {
	paths := make([]string, len(hits))
	var open []level
	next := 0
	for i := 0; i < len(state) && next < len(hits); {
		switch c := state[i]; c {
		case '{', '[':
			open = append(open, level{array: c == '['})
			i++
		case '}', ']':
			open = open[:max(len(open)-1, 0)]
			i++
		case ',':
			if n := len(open); n > 0 {
				open[n-1].index++
			}
			i++
		case '"':
			end := endOfString(state, i+1)
			after := skipSpace(state, min(end+1, len(state)))
			if n := len(open); n > 0 && !open[n-1].array && after < len(state) && state[after] == ':' {
				open[n-1].key = string(state[i+1 : end])
			}
			for next < len(hits) && hits[next].from <= end {
				paths[next] = pointer(open)
				next++
			}
			i = end + 1
		default:
			i++
		}
	}
	return paths
}

var escape = strings.NewReplacer("~", "~0", "/", "~1")

func pointer(open []level) string {
	var b strings.Builder
	for _, l := range open {
		b.WriteByte('/')
		if l.array {
			b.WriteString(strconv.Itoa(l.index))
		} else {
			b.WriteString(escape.Replace(l.key))
		}
	}
	return b.String()
}
