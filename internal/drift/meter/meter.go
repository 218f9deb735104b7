package meter

import (
	"context"
	"math"
	"math/bits"
	"slices"
)

// tooMuch is the panic value of work that costs more than the meter has left.
type tooMuch struct{}

// cancelled is the panic value of work whose context has ended.
type cancelled struct{ err error }

// Meter is what a rule or a schema may still use: units of work of about 50 ns, bytes of
// text that it creates, and levels of nesting. Work is paid for before it is done. Work
// that cannot be paid for panics; [Run] recovers.
type Meter struct {
	ctx               context.Context // ends the work; nil never does
	work, text, depth int
	look              int // the context is checked again when work is below this
}

// New returns a meter with this many units of work and bytes of text. The end of ctx ends
// the work.
func New(ctx context.Context, work, text int) Meter {
	return Meter{ctx: ctx, work: work, text: text}
}

// Left returns the work that was not used.
func (m *Meter) Left() int { return max(0, m.work) }

// MakeText pays for creating n bytes of text.
func (m *Meter) MakeText(n int) {
	m.PayText(n)
	if m.text -= n; m.text < 0 {
		panic(tooMuch{})
	}
}

// Down enters one level of nesting. There can be at most this many levels.
func (m *Meter) Down(most int) {
	if m.depth++; m.depth > most {
		panic(tooMuch{})
	}
}

// Up leaves the level that Down entered.
func (m *Meter) Up() { m.depth-- }

// lookEvery is the work between two checks of the context: about half a millisecond.
const lookEvery = 10_000

// Pay pays for this many units of work.
func (m *Meter) Pay(work int) {
	if m.work -= work; m.work < 0 {
		panic(tooMuch{})
	}
	if m.ctx != nil && (m.look == 0 || m.work < m.look) {
		first := m.look == 0
		m.look = max(1, m.work-lookEvery)
		if !first && m.ctx.Err() != nil { // cheap work is finished in any case
			panic(cancelled{m.ctx.Err()})
		}
	}
}

// PayText pays for reading n bytes of text.
func (m *Meter) PayText(n int) { m.Pay(1 + n/64) }

// paySort pays for sorting n texts that have this many bytes together.
func (m *Meter) paySort(n, bytes int) {
	m.Pay(1 + (n*(4+2*bits.Len(uint(n)))+bytes/32*bits.Len(uint(n)))/4)
}

// Run runs a function that pays. stopped is true if the function cost too much. err is
// the error of the context if that ended the function.
func Run(do func()) (stopped bool, err error) {
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

// Keys returns the names of the members of an object, sorted. It pays for them.
func (m *Meter) Keys(object map[string]any) []string {
	m.Pay(1 + len(object))
	keys, size := make([]string, 0, len(object)), 0
	for key := range object {
		keys, size = append(keys, key), size+len(key)
	}
	m.paySort(len(keys), size)
	slices.Sort(keys)
	return keys
}

// Member returns the value of a member of an object. It pays for reading the whole name,
// as a look-up does.
func (m *Meter) Member(object map[string]any, name string) (value any, there bool) {
	m.Pay(2 + len(name)/64)
	value, there = object[name]
	return value, there
}

// Equal compares whole JSON values, and pays for every part.
func (m *Meter) Equal(a, b any) bool {
	m.Pay(1)
	switch a := a.(type) {
	case string:
		b, ok := b.(string)
		if !ok || len(a) != len(b) {
			return false
		}
		m.PayText(len(a))
		return a == b
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !m.Equal(a[i], b[i]) {
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
			m.Pay(2)
			other, there := m.Member(b, key)
			if !there || !m.Equal(value, other) {
				return false
			}
		}
		return true
	}
	return a == b
}

// Hash returns equal numbers for equal values, and pays for every part.
func (m *Meter) Hash(v any) uint64 {
	m.Pay(1)
	switch v := v.(type) {
	case string:
		m.PayText(len(v))
		return HashText(v)
	case float64:
		if v == 0 {
			v = 0 // -0 equals 0
		}
		return Mix(1, math.Float64bits(v))
	case bool:
		if v {
			return Mix(2, 1)
		}
		return Mix(2, 0)
	case []any:
		sum := uint64(3)
		for _, item := range v {
			sum = Mix(sum, m.Hash(item))
		}
		return sum
	case map[string]any:
		sum := uint64(4)
		for key, value := range v {
			m.Pay(2 + len(key)/64)
			sum += Mix(HashText(key), m.Hash(value)) // the order does not matter
		}
		return sum
	}
	return 5
}

// HashText returns a hash of a text.
func HashText(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return bits.RotateLeft64(h, 32) ^ h
}

// Mix combines two numbers into one. Their order matters.
func Mix(a, b uint64) uint64 {
	a ^= b*0x9e3779b97f4a7c15 + 0x632be59bd9b4e019
	a ^= a >> 29
	a *= 0xbf58476d1ce4e5b9
	return a ^ a>>32
}
