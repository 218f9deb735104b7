package jsontext

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	wordOnes   = 0x0101010101010101
	wordHighs  = 0x8080808080808080
	wordSpaces = ' ' * wordOnes
)

func skipSpace(data []byte, p int) int {
	if p < len(data) && data[p] > ' ' {
		return p // compact JSON: nearly always
	}
	return skipSpaceSlow(data, p)
}

func skipSpaceSlow(data []byte, p int) int {
	for p < len(data) {
		switch data[p] {
		case ' ':
			// Indentation comes in runs.
			for p+8 <= len(data) && binary.LittleEndian.Uint64(data[p:]) == wordSpaces {
				p += 8
			}
			for p < len(data) && data[p] == ' ' {
				p++
			}
		case '\n', '\r', '\t':
			p++
		default:
			return p
		}
	}
	return p
}

// scanString reads the string that begins at p and returns the place after its
// closing quote, or the place of the fault and a reason.
func scanString(data []byte, p int) (int, string) {
	p = plainRun(data, p+1)
	for p < len(data) {
		switch c := data[p]; {
		case c == '"':
			return p + 1, ""
		case c == '\\':
			size, whole := escapeLen(data, p)
			if !whole {
				return len(data), reasonEnd
			}
			if size == 0 {
				return p, reasonEscape
			}
			p = plainRun(data, p+size)
		case c < ' ':
			return p, reasonControl
		case c < utf8.RuneSelf:
			// Only after a rune that is not ASCII: the plain run begins again.
			p = plainRun(data, p)
		default:
			size := wideRuneLen(data[p:])
			if size == 0 {
				return p, reasonUTF8
			}
			p += size
		}
	}
	return len(data), reasonEnd
}

// plainRun returns the place of the first byte from p on that is a quote, a
// backslash, a control character or not ASCII, or len(data).
func plainRun(data []byte, p int) int {
	for p+8 <= len(data) {
		if m := specialBytes(binary.LittleEndian.Uint64(data[p:])); m != 0 {
			return p + bits.TrailingZeros64(m)>>3
		}
		p += 8
	}
	for p < len(data) && data[p] >= ' ' && data[p] < utf8.RuneSelf && data[p] != '"' && data[p] != '\\' {
		p++
	}
	return p
}

// specialBytes sets the high bit of the bytes of w at which plainRun stops.
// The subtractions borrow from the next byte only if a byte is special, so the lowest bit that is
// set is always right; higher bits may be wrong.
func specialBytes(w uint64) uint64 {
	control := w - wordSpaces
	quote := (w ^ '"'*wordOnes) - wordOnes
	backslash := (w ^ '\\'*wordOnes) - wordOnes
	return (control | quote | backslash | w) & wordHighs
}

// escapeLen returns the length of the escape at p, 0 if it is invalid; whole is
// false if data ends within it.
func escapeLen(data []byte, p int) (size int, whole bool) {
	if p+1 >= len(data) {
		return 0, false
	}
	switch data[p+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2, true
	case 'u':
		for i := p + 2; i < p+6; i++ {
			if i >= len(data) {
				return 0, false
			}
			if !isHex(data[i]) {
				return 0, true
			}
		}
		return 6, true
	}
	return 0, true
}

func isHex(c byte) bool {
	return c-'0' <= 9 || c|0x20-'a' <= 5
}

// wideRuneLen returns the length of the UTF-8 sequence of two to four bytes that begins b, or 0 if
// it is invalid. The masks test the form of all its bytes at once. What they miss are overlong
// forms, surrogates and code points that are too large, which the first two bytes show.
func wideRuneLen(b []byte) int {
	if len(b) < 4 {
		if r, size := utf8.DecodeRune(b); r != utf8.RuneError || size > 1 {
			return size
		}
		return 0
	}
	w := binary.LittleEndian.Uint32(b)
	switch {
	case w&0x00C0C0F0 == 0x008080E0:
		if m := w & 0x200F; m != 0 && m != 0x200D {
			return 3
		}
	case w&0xC0E0 == 0x80C0:
		if w&0x1E != 0 {
			return 2
		}
	case w&0xC0C0C0F8 == 0x808080F0:
		if m := w & 0x3007; m != 0 && (m&7 < 4 || m == 4) {
			return 4
		}
	}
	return 0
}

// scanScalar reads true, false, null or a number.
func scanScalar(data []byte, p int) (int, string) {
	switch c := data[p]; {
	case c == '-' || isDigit(c):
		return scanNumber(data, p)
	case c == 't':
		return scanWord(data, p, "true")
	case c == 'f':
		return scanWord(data, p, "false")
	case c == 'n':
		return scanWord(data, p, "null")
	case bytes.HasPrefix(data[p:], []byte("NaN")) || bytes.HasPrefix(data[p:], []byte("Infinity")):
		return p, reasonNaN
	}
	return p, reasonValue
}

func scanWord(data []byte, p int, word string) (int, string) {
	have := data[p:min(p+len(word), len(data))]
	switch {
	case string(have) == word:
		return p + len(word), ""
	case string(have) == word[:len(have)]:
		return len(data), reasonEnd
	}
	return p, reasonValue
}

func isDigit(c byte) bool { return c-'0' <= 9 }

// skipDigits returns the place of the first byte from p on that is not a digit.
func skipDigits(data []byte, p int) int {
	for p < len(data) && isDigit(data[p]) {
		p++
	}
	return p
}

// scanNumber reads a number. The place of a fault is the number's beginning,
// unless the text ends in it.
func scanNumber(data []byte, start int) (int, string) {
	p := start
	if data[p] == '-' {
		p++
	}
	from := p
	p = skipDigits(data, p)
	switch {
	case p == from:
		return numberFault(data, start, p)
	case data[from] == '0' && p-from > 1:
		return start, reasonNumber
	}
	if p < len(data) && data[p] == '.' {
		from = p + 1
		if p = skipDigits(data, from); p == from {
			return numberFault(data, start, p)
		}
	}
	if p < len(data) && data[p]|0x20 == 'e' {
		from = p + 1
		if from < len(data) && (data[from] == '+' || data[from] == '-') {
			from++
		}
		if p = skipDigits(data, from); p == from {
			return numberFault(data, start, p)
		}
	}
	return p, ""
}

// numberFault explains why there is no digit at p.
func numberFault(data []byte, start, p int) (int, string) {
	switch {
	case p == len(data):
		return p, reasonEnd
	case bytes.HasPrefix(data[start:], []byte("-Infinity")):
		return start, reasonNaN
	}
	return start, reasonNumber
}

// appendUnescaped appends the text of a checked string (without its quotes). If replace is set,
// lone surrogates become U+FFFD, as in encoding/json. Otherwise each is appended as three bytes
// that never appear in valid UTF-8, so that different strings stay different.
func appendUnescaped(dst, raw []byte, replace bool) []byte {
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return append(dst, raw...)
		}
		dst = append(dst, raw[:i]...)
		raw = raw[i:]
		if raw[1] != 'u' {
			dst = append(dst, simpleEscape(raw[1]))
			raw = raw[2:]
			continue
		}
		r := hexRune(raw)
		raw = raw[6:]
		if utf16.IsSurrogate(r) && len(raw) >= 6 && raw[0] == '\\' && raw[1] == 'u' {
			if pair := utf16.DecodeRune(r, hexRune(raw)); pair != utf8.RuneError {
				r = pair
				raw = raw[6:]
			}
		}
		if utf16.IsSurrogate(r) && !replace {
			dst = append(dst, 0xE0|byte(r>>12), 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F)
		} else {
			dst = utf8.AppendRune(dst, r) // U+FFFD for a surrogate
		}
	}
}

func simpleEscape(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}

// hexRune returns the code unit of the escape \uXXXX that begins raw.
func hexRune(raw []byte) rune {
	var r rune
	for _, c := range raw[2:6] {
		if isDigit(c) {
			r = r<<4 | rune(c-'0')
		} else {
			r = r<<4 | rune(c|0x20-'a'+10)
		}
	}
	return r
}

// skipValue returns the place after the value that begins at p in checked data.
func skipValue(data []byte, p int) int {
	for depth := 0; p < len(data); {
		switch data[p] {
		case '"':
			p, _ = scanString(data, p)
		case '{', '[':
			depth++
			p++
		case '}', ']':
			depth--
			p++
		default:
			p = skipScalar(data, p)
		}
		if depth == 0 {
			return p
		}
	}
	return p
}

// skipScalar skips at least one byte, and then all bytes up to the next byte with a meaning of its
// own; within containers, the skipped bytes can be commas, colons and space.
func skipScalar(data []byte, p int) int {
	for p++; p < len(data); p++ {
		switch data[p] {
		case ',', ':', ']', '}', '[', '{', '"', ' ', '\n', '\r', '\t':
			return p
		}
	}
	return p
}
