package drift

import (
	"context"
	"math"
	"math/bits"
	"slices"
)

// tooMuch is thrown where a rule or a schema cannot pay for its next piece of
// work.
type tooMuch struct{}

// cancelled is thrown where nobody waits for the answer any more.
type cancelled struct{ err error }

// meter is what a rule or a schema may still cost: units of work of about 50 ns,
// bytes of text that it makes, and levels that it goes down. Every piece of work
// is paid for before it is done.
type meter struct {
	ctx               context.Context // ends the work; nil never does
	work, text, depth int
	look              int // ctx is asked again once work is below this
}

// lookEvery is the work between two looks at the context: about half a
// millisecond.
const lookEvery = 10_000

func (m *meter) pay(work int) {
	if m.work -= work; m.work < 0 {
		panic(tooMuch{})
	}
	if m.ctx != nil && (m.look == 0 || m.work < m.look) {
		first := m.look == 0
		m.look = max(1, m.work-lookEvery)
		if !first && m.ctx.Err() != nil { // what costs little is finished in any case
			panic(cancelled{m.ctx.Err()})
		}
	}
}

// payText pays for reading so many bytes of text.
func (m *meter) payText(n int) { m.pay(1 + n/64) }

// paySort pays for sorting so many texts that have so many bytes together.
func (m *meter) paySort(n, bytes int) {
	m.pay(1 + (n*(4+2*bits.Len(uint(n)))+bytes/32*bits.Len(uint(n)))/4)
}

// metered runs what pays. stopped says that it cost too much; err is the error
// of the context that ended it.
func metered(do func()) (stopped bool, err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case tooMuch:
			stopped = true
		case cancelled:
			err = p.err
		default:
			panic(p)
		}
	}()
	do()
	return false, nil
}

// keys are the names of the members of an object, in order. They are paid for.
func (m *meter) keys(object map[string]any) []string {
	m.pay(1 + len(object))
	keys, size := make([]string, 0, len(object)), 0
	for key := range object {
		keys, size = append(keys, key), size+len(key)
	}
	m.paySort(len(keys), size)
	slices.Sort(keys)
	return keys
}

// member is the value of a member of an object. Looking for a name reads all of
// it, however long it is.
func (m *meter) member(object map[string]any, name string) (value any, there bool) {
	m.pay(2 + len(name)/64)
	value, there = object[name]
	return value, there
}

// equal compares whole JSON values, and pays for every part.
func (m *meter) equal(a, b any) bool {
	m.pay(1)
	switch a := a.(type) {
	case string:
		b, ok := b.(string)
		if !ok || len(a) != len(b) {
			return false
		}
		m.payText(len(a))
		return a == b
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !m.equal(a[i], b[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for key, value := range a {
			m.pay(2)
			other, there := m.member(b, key)
			if !there || !m.equal(value, other) {
				return false
			}
		}
		return true
	}
	return a == b
}

// hash gives equal values equal numbers, and pays for every part.
func (m *meter) hash(v any) uint64 {
	m.pay(1)
	switch v := v.(type) {
	case string:
		m.payText(len(v))
		return hashText(v)
	case float64:
		if v == 0 {
			v = 0 // -0 is 0
		}
		return mix(1, math.Float64bits(v))
	case bool:
		return mix(2, uint64(b2i(v)))
	case []any:
		sum := uint64(3)
		for _, item := range v {
			sum = mix(sum, m.hash(item))
		}
		return sum
	case map[string]any:
		sum := uint64(4)
		for key, value := range v {
			m.pay(2 + len(key)/64)
			sum += mix(hashText(key), m.hash(value)) // in whatever order
		}
		return sum
	}
	return 5
}

func hashText(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return bits.RotateLeft64(h, 32) ^ h
}
