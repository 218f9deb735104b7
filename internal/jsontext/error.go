package jsontext

import (
	"bytes"
	"fmt"
	"strconv"
)

// MaxDepth is how deeply objects and arrays may be nested. Readers of what we store may be
// recursive, so the limit is far below what would harm this package.
const MaxDepth = 1000

var reasonDepth = fmt.Sprintf("nested more than %d deep", MaxDepth)

// Error says what is wrong in a JSON text and where.
type Error struct {
	// Offset is the 0-based byte offset of the fault. Line and Column are the same place, 1-based;
	// Column counts bytes.
	Offset int
	Line   int
	Column int
	// Path is the JSON pointer (RFC 6901) of the value being read, "" for the whole text. A fault
	// in a key, or between members, belongs to the object around it. Keys longer than 64 bytes are
	// cut and end in "…".
	Path string
	// Reason is one part of a sentence, such as `duplicate key "a"`. It may name a key or a Go
	// type, never a value.
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

// newError computes line, column and path, which only errors need, by reading data again up to
// offset.
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
