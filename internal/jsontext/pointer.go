package jsontext

import (
	"strconv"
	"strings"
)

// pathStep is one open container on the way to a place.
type pathStep struct {
	object  bool
	inValue bool // a member's value is due or being read
	key     []byte
	index   int
}

// pathAt returns the JSON pointer of the value being read at offset; data
// is valid up to there.
func pathAt(data []byte, offset int) string {
	var steps []pathStep
	var outside pathStep // stands for a container around the whole text
	for p := 0; p < offset; {
		top := &outside
		if len(steps) > 0 {
			top = &steps[len(steps)-1]
		}
		start := p
		switch data[p] {
		case ' ', '\n', '\r', '\t':
			p++
			continue
		case '{':
			steps = append(steps, pathStep{object: true})
			p++
			continue
		case '[':
			steps = append(steps, pathStep{inValue: true})
			p++
			continue
		case '}', ']':
			steps = steps[:len(steps)-1]
			p++
			if len(steps) > 0 {
				steps[len(steps)-1].inValue = false
			}
			continue
		case ',':
			top.index++
			top.inValue = !top.object
			p++
			continue
		case ':':
			top.inValue = true
			p++
			continue
		case '"':
			var reason string
			if p, reason = scanString(data, p); reason != "" {
				p = offset + 1 // the fault is in this string
			}
		default:
			if p = skipScalar(data, p); p == len(data) {
				p = offset + 1 // it may have been meant to go on
			}
		}
		switch {
		case p > offset: // the fault is in this token
		case top.object && !top.inValue:
			top.key = data[start+1 : p-1]
		default:
			top.inValue = false
		}
	}
	return joinPointer(steps)
}

var (
	pointerEscaper   = strings.NewReplacer("~", "~0", "/", "~1")
	pointerUnescaper = strings.NewReplacer("~1", "/", "~0", "~")
)

// EscapePointer writes a name as one part of a JSON pointer (RFC 6901).
func EscapePointer(name string) string { return pointerEscaper.Replace(name) }

// UnescapePointer is the name that one part of a JSON pointer stands for.
func UnescapePointer(part string) string { return pointerUnescaper.Replace(part) }

func joinPointer(steps []pathStep) string {
	var b strings.Builder
	for _, s := range steps {
		switch {
		case !s.inValue: // only the last may be so
		case s.object:
			b.WriteString("/" + EscapePointer(shownKey(s.key)))
		default:
			b.WriteString("/" + strconv.Itoa(s.index))
		}
	}
	return b.String()
}
