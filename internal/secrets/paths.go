package secrets

import (
	"strconv"
	"strings"

	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// named turns hits into secrets, which say where they are but not their values.
func named(state []byte, json bool, places *jsontext.Map, hits []hit) []Secret {
	if len(hits) == 0 {
		return nil
	}
	found := make([]Secret, len(hits))
	paths := make([]string, len(hits))
	if json {
		paths = pointers(state, places, hits)
	}
	for i, h := range hits {
		found[i] = Secret{Path: paths[i], Kind: h.kind}
	}
	return found
}

// level is an object or array around a place.
type level struct {
	array bool
	index int
	key   string
}

// pointers returns the JSON pointers of the values that contain the hits. It walks
// through the state, and skips what the map knows. The map may be nil.
func pointers(state []byte, places *jsontext.Map, hits []hit) []string {
	paths := make([]string, len(hits))
	hops := places.Hops()
	var open []level
	next := 0
	for i := 0; i < len(state) && next < len(hits); {
		if to, elements := hops.From(i, hits[next].from); to > i {
			if elements > 0 {
				open[len(open)-1].index += elements
			}
			i = to
			continue
		}
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
			after := jsontext.SkipSpace(state, min(end+1, len(state)))
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

func pointer(open []level) string {
	var b strings.Builder
	for _, l := range open {
		b.WriteByte('/')
		if l.array {
			b.WriteString(strconv.Itoa(l.index))
		} else {
			b.WriteString(jsontext.EscapePointer(l.key))
		}
	}
	return b.String()
}
