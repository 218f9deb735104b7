package delta

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// Wire returns the form in which the operations that make a state are sent: a JSON array of operations
// on one line, and the literal bytes. [offset, length] copies from the base. A number n takes
// the next n of the literal bytes.
func Wire(state []byte, ops []Op) []byte {
	literals := 0
	for _, op := range ops {
		if op.Offset == Literal {
			literals += op.Length
		}
	}
	wire := append(make([]byte, 0, literals+len(ops)*24+3), '[')
	for i, op := range ops {
		if i > 0 {
			wire = append(wire, ',')
		}
		if op.Offset == Literal {
			wire = strconv.AppendInt(wire, int64(op.Length), 10)
			continue
		}
		wire = strconv.AppendInt(append(wire, '['), int64(op.Offset), 10)
		wire = strconv.AppendInt(append(wire, ','), int64(op.Length), 10)
		wire = append(wire, ']')
	}
	wire = append(wire, ']', '\n')
	at := 0
	for _, op := range ops {
		if op.Offset == Literal {
			wire = append(wire, state[at:at+op.Length]...)
		}
		at += op.Length
	}
	return wire
}

// MaxOnWire is the most operations in a change that this package makes.
const MaxOnWire = 4096

// Size returns how many bytes Apply will make from a base, so that the caller can ask
// for the memory first. It checks everything that Apply checks.
func Size(baseSize int, wire []byte) (int, error) {
	line, literals, err := split(wire)
	if err != nil {
		return 0, err
	}
	size, taken := 0, 0
	err = operations(line, func(op Op) error {
		switch {
		case op.Offset == Literal && op.Length > len(literals)-taken:
			return errors.New("an operation takes more literal bytes than there are")
		case op.Offset == Literal:
			taken += op.Length
		case op.Offset > baseSize || op.Length > baseSize-op.Offset:
			return fmt.Errorf("an operation copies from outside the base of %d bytes", baseSize)
		}
		if size += op.Length; size > most {
			return errors.New("the result is too large")
		}
		return nil
	})
	if err == nil && taken < len(literals) {
		err = fmt.Errorf("%d literal bytes are left over", len(literals)-taken)
	}
	return size, err
}

// Apply makes a state from a base and a change, in memory if that is large enough. It also
// returns the operations, if there are not more than MaxOperations.
func Apply(memory, base, wire []byte) (state []byte, ops []Op, err error) {
	size, err := Size(len(base), wire)
	if err != nil {
		return nil, nil, err
	}
	line, literals, _ := split(wire)
	if state = memory[:0]; cap(state) < size {
		state = make([]byte, 0, size)
	}
	err = operations(line, func(op Op) error {
		if len(ops) <= MaxOperations {
			ops = append(ops, op)
		}
		if op.Offset == Literal {
			state = append(state, literals[:op.Length]...)
			literals = literals[op.Length:]
			return nil
		}
		state = append(state, base[op.Offset:op.Offset+op.Length]...)
		return nil
	})
	if len(ops) > MaxOperations {
		ops = nil
	}
	return state, ops, err
}

// most is the largest number that an operation may contain, so that sums of two never
// overflow, not even with 32 bits.
const most = 1<<30 - 1

func split(wire []byte) (line, literals []byte, err error) {
	line, literals, found := bytes.Cut(wire, []byte{'\n'})
	if !found {
		return nil, nil, errors.New("its first line, the operations, does not end")
	}
	return line, literals, nil
}

// operations reads the first line, and calls do for each operation.
func operations(line []byte, do func(Op) error) error {
	s := scanner{rest: line}
	if !s.take('[') {
		return errNotOperations
	}
	for i := 0; !s.take(']'); i++ {
		if i > 0 && !s.take(',') {
			return errNotOperations
		}
		op, err := s.operation()
		if err == nil {
			err = do(op)
		}
		if err != nil {
			return err
		}
	}
	if s.space(); len(s.rest) > 0 {
		return errNotOperations
	}
	return nil
}

var errNotOperations = errors.New("its first line is not a JSON array of operations: [offset, length] or a number")

type scanner struct{ rest []byte }

func (s *scanner) space() {
	for len(s.rest) > 0 && (s.rest[0] == ' ' || s.rest[0] == '\t' || s.rest[0] == '\r') {
		s.rest = s.rest[1:]
	}
}

func (s *scanner) take(c byte) bool {
	s.space()
	if len(s.rest) == 0 || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

func (s *scanner) operation() (Op, error) {
	op := Op{Offset: Literal}
	pair := s.take('[')
	var ok bool
	if pair {
		if op.Offset, ok = s.number(); !ok || !s.take(',') {
			return op, errNotOperations
		}
	}
	if op.Length, ok = s.number(); !ok || pair && !s.take(']') {
		return op, errNotOperations
	}
	if op.Length == 0 {
		return op, errors.New("an operation has the length 0")
	}
	return op, nil
}

// number reads a JSON number that is an integer and not too large.
func (s *scanner) number() (int, bool) {
	s.space()
	n, i := 0, 0
	for ; i < len(s.rest) && '0' <= s.rest[i] && s.rest[i] <= '9'; i++ {
		if n = n*10 + int(s.rest[i]-'0'); n > most || i > 0 && s.rest[0] == '0' {
			return 0, false
		}
	}
	s.rest = s.rest[i:]
	return n, i > 0
}
