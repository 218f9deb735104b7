package jsontext

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"
)

// pathStep is one open container on the way to a place.
type pathStep struct {
	object  bool
	inValue bool // a member's value comes next or is being read
	key     []byte
	index   int
}

// pathAt returns the JSON pointer of the value being read at offset; data must be valid up to
// there.
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
				p = offset + 1 // the token may have been meant to continue
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

// UnescapePointer returns the name that one part of a JSON pointer represents.
func UnescapePointer(part string) string { return pointerUnescaper.Replace(part) }

func joinPointer(steps []pathStep) string {
	var b strings.Builder
	for _, s := range steps {
		switch {
		case !s.inValue: // only the last step can be like this
		case s.object:
			b.WriteString("/" + EscapePointer(shownKey(s.key)))
		default:
			b.WriteString("/" + strconv.Itoa(s.index))
		}
	}
	return b.String()
}

// cutPointer keeps the end of a long pointer: that is where the fault is.
func cutPointer(path string) string {
	if len(path) <= maxShownPath {
		return path
	}
	tail := path[len(path)-maxShownPath:]
	if i := strings.IndexByte(tail, '/'); i >= 0 {
		tail = tail[i:]
	}
	return "…" + strings.ToValidUTF8(tail, "")
}

// shownKey returns a raw key (without its quotes) in the form in which an error can show it.
func shownKey(raw []byte) string {
	key := string(raw)
	if bytes.IndexByte(raw, '\\') >= 0 {
		// An escape is at most six times as long as the text that it represents, so this prefix is
		// enough; it may end in the middle of an escape.
		key = string(appendUnescaped(nil, wholeEscapes(raw, 6*maxShownKey+6), true))
	}
	return cutKey(key)
}

func cutKey(key string) string {
	if len(key) <= maxShownKey {
		return key
	}
	n := maxShownKey
	for n > 0 && !utf8.RuneStart(key[n]) {
		n--
	}
	return key[:n] + "…"
}

// wholeEscapes returns at least the first n bytes of raw (or all), and does not end within an
// escape or a rune.
func wholeEscapes(raw []byte, n int) []byte {
	p := 0
	for p < len(raw) && p < n {
		switch {
		case raw[p] == '\\':
			size, _ := escapeLen(raw, p)
			p += max(size, 1)
		default:
			_, size := utf8.DecodeRune(raw[p:])
			p += size
		}
	}
	return raw[:p]
}

// maxShownKey is how many bytes of a key an error shows; maxShownPath is the
// same for a whole pointer in an error's text.
const (
	maxShownKey  = 64
	maxShownPath = 256
)
