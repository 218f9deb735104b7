package jsontext

import (
	"bytes"
	"fmt"
	"math"
	"sync"
)

// Check reports whether data is exactly one strict JSON value: RFC 8259 grammar, valid UTF-8
// without byte order mark, no key twice in one object (keys are compared after unescaping), nothing
// after the value but white space, at most MaxDepth levels. Escaped lone surrogates such as
// "\ud800" are legal JSON that agents do emit, so they are accepted; as keys they equal only
// themselves. The error is an *Error or nil.
//
// It reads data once, keeps no reference to it, and for usual documents does not allocate.
func Check(data []byte) error {
	if err := check(data); err != nil {
		return err
	}
	return nil
}

func check(data []byte) *Error {
	if uint64(len(data)) > math.MaxUint32 {
		// Key places are stored in 32 bits.
		return &Error{Line: 1, Column: 1, Reason: reasonTooLong}
	}
	s := scanners.Get().(*scanner)
	p, reason := s.scan(data)
	s.reset()
	scanners.Put(s)
	if reason != "" {
		return newError(data, p, reason)
	}
	return nil
}

// scanner walks one text without recursion. The memory that it keeps between texts is small and
// bounded; large key tables are left to the garbage collector.
type scanner struct {
	stack  []frame
	keys   []keySpan   // keys of open objects without a table, innermost last
	free   []*keyTable // tables of minimum size, empty
	mapper *mapper     // nil if no map is wanted
}

// frame is one open object or array.
type frame struct {
	object bool
	from   int       // where the object's keys begin in scanner.keys
	table  *keyTable // set once the object has many or escaped keys
}

// keySpan is a key without its quotes, as offsets into the text.
type keySpan struct{ start, end uint32 }

var scanners = sync.Pool{New: func() any { return new(scanner) }}

func (s *scanner) reset() {
	clear(s.stack) // after an error, frames still hold tables
	s.stack = s.stack[:0]
	s.keys = s.keys[:0]
	s.mapper = nil
}

// scan returns "" if data is one strict value, else a reason and its place.
func (s *scanner) scan(data []byte) (p int, reason string) {
	if bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) {
		return 0, reasonBOM
	}
	for {
		if p = skipSpace(data, p); p == len(data) {
			return p, reasonEnd
		}
		var opened bool
		switch data[p] {
		case '"':
			p, reason = scanString(data, p)
		case '{':
			p, opened, reason = s.openObject(data, p)
		case '[':
			p, opened, reason = s.openArray(data, p)
		default:
			p, reason = scanScalar(data, p)
		}
		if reason != "" {
			return p, reason
		}
		if opened {
			continue // the first member's value is due
		}
		var done bool
		if p, done, reason = s.afterValue(data, p); done || reason != "" {
			return p, reason
		}
	}
}

// openObject reads "{" and, unless the object is empty, its first key.
func (s *scanner) openObject(data []byte, p int) (next int, opened bool, reason string) {
	if len(s.stack) == MaxDepth {
		return p, false, reasonDepth
	}
	p = skipSpace(data, p+1)
	if p < len(data) && data[p] == '}' {
		return p + 1, false, ""
	}
	s.stack = append(s.stack, frame{object: true, from: len(s.keys)})
	p, reason = s.key(data, p, reasonFirstKey)
	return p, true, reason
}

func (s *scanner) openArray(data []byte, p int) (next int, opened bool, reason string) {
	if len(s.stack) == MaxDepth {
		return p, false, reasonDepth
	}
	p = skipSpace(data, p+1)
	if p < len(data) && data[p] == ']' {
		return p + 1, false, ""
	}
	s.stack = append(s.stack, frame{})
	return p, true, ""
}

// afterValue reads what follows a value, through closing brackets, up to the place where the next
// value begins or the text ends.
func (s *scanner) afterValue(data []byte, p int) (next int, done bool, reason string) {
	for {
		p = skipSpace(data, p)
		if len(s.stack) == 0 {
			if p < len(data) {
				return p, false, reasonAfter
			}
			return p, true, ""
		}
		if p == len(data) {
			return p, false, reasonEnd
		}
		object := s.stack[len(s.stack)-1].object
		switch c := data[p]; {
		case c == ',' && object:
			p, reason = s.key(data, skipSpace(data, p+1), reasonKey)
			return p, false, reason
		case c == ',':
			return p + 1, false, ""
		case c == '}' && object:
			s.closeObject()
			if s.mapper != nil {
				s.mapper.closed(p + 1)
			}
		case c == ']' && !object:
			s.stack = s.stack[:len(s.stack)-1]
			if s.mapper != nil {
				s.mapper.closed(p + 1)
			}
		case object:
			return p, false, reasonCommaBrace
		default:
			return p, false, reasonCommaSquare
		}
		p++
	}
}

func (s *scanner) closeObject() {
	top := &s.stack[len(s.stack)-1]
	s.keys = s.keys[:top.from]
	if top.table != nil {
		s.release(top.table)
		top.table = nil
	}
	s.stack = s.stack[:len(s.stack)-1]
}

// key reads a key and its colon; expected is the reason if there is no key.
func (s *scanner) key(data []byte, p int, expected string) (int, string) {
	if p == len(data) {
		return p, reasonEnd
	}
	if data[p] != '"' {
		return p, expected
	}
	end, reason := scanString(data, p)
	if reason != "" {
		return end, reason
	}
	if !s.addKey(data, p+1, end-1) {
		return p, fmt.Sprintf("duplicate key %q", shownKey(data[p+1:end-1]))
	}
	p = skipSpace(data, end)
	switch {
	case p == len(data):
		return p, reasonEnd
	case data[p] != ':':
		return p, reasonColon
	}
	return p + 1, ""
}
