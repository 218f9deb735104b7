package jsontext

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxDepth is how many objects and arrays may be open inside one another.
// Readers of what we store may well be recursive, so the limit is far below
// what would hurt this package.
const MaxDepth = 1000

// maxShownKey is how many bytes of a key an error shows; maxShownPath is the
// same for a whole pointer in an error's text.
const (
	maxShownKey  = 64
	maxShownPath = 256
)

// What can be wrong with a text. Reasons that name a key are built where they
// are found.
const (
	reasonEnd         = "unexpected end"
	reasonAfter       = "data after the value"
	reasonUTF8        = "invalid UTF-8"
	reasonBOM         = "byte order mark before the value"
	reasonControl     = "unescaped control character in a string"
	reasonEscape      = "invalid escape in a string"
	reasonNumber      = "invalid number"
	reasonNaN         = "NaN and Infinity are not JSON"
	reasonValue       = "expected a value"
	reasonFirstKey    = `expected a key or "}"`
	reasonKey         = "expected a key"
	reasonColon       = `expected ":"`
	reasonCommaBrace  = `expected "," or "}"`
	reasonCommaSquare = `expected "," or "]"`
	reasonTooLong     = "longer than 4 GiB"
)

var reasonDepth = fmt.Sprintf("nested more than %d deep", MaxDepth)

// Error says what is wrong in a JSON text and where.
type Error struct {
	// Offset is the 0-based byte offset of the fault; Line and Column say the
	// same 1-based, the column in bytes.
	Offset int
	Line   int
	Column int
	// Path is the JSON pointer (RFC 6901) of the value being read, "" for the
	// whole text. A fault in a key, or between members, belongs to the object
	// around it. Keys longer than 64 bytes are cut and end in "…".
	Path string
	// Reason is one sentence part, such as `duplicate key "a"`. It may name a
	// key or a Go type, never a value.
	Reason string
}

// Error returns one line with the place and the reason. It never shows values,
// which may be secrets.
func (e *Error) Error() string {
	where := "top level"
	if e.Path != "" {
		where = strconv.Quote(cutPointer(e.Path))
	}
	return fmt.Sprintf("JSON line %d, column %d (byte %d), at %s: %s",
		e.Line, e.Column, e.Offset, where, e.Reason)
}

// newError works out line, column and path, which only errors need, by
// reading data again up to offset.
func newError(data []byte, offset int, reason string) *Error {
	before := data[:offset]
	return &Error{
		Offset: offset,
		Line:   1 + bytes.Count(before, []byte{'\n'}),
		Column: offset - bytes.LastIndexByte(before, '\n'),
		Path:   pathAt(data, offset),
		Reason: reason,
	}
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

// shownKey returns a raw key (between its quotes) as an error may show it.
func shownKey(raw []byte) string {
	key := string(raw)
	if bytes.IndexByte(raw, '\\') >= 0 {
		// An escape is at most six times as long as what it stands for, so
		// this prefix is enough; it may end in the middle of an escape.
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

// wholeEscapes returns at least the first n bytes of raw (or all), not ending
// within an escape or a rune.
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
