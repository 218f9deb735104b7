package drift

import (
	"math"
	"math/bits"
)

// tooMuch is thrown where what a user wrote, a rule or a schema, cannot pay any
// more.
type tooMuch struct{}

// meter is what a rule or a schema may still cost: units of work of about 50 ns,
// bytes of text that it makes, and levels that it goes down. Everything is paid
// for before it is done.
type meter struct{ work, text, depth int }

func (m *meter) pay(work int) {
	if m.work -= work; m.work < 0 {
		panic(tooMuch{})
	}
}

// payText pays for reading so many bytes of text.
func (m *meter) payText(n int) { m.pay(1 + n/64) }

// metered runs what pays, and says whether it had to be stopped.
func metered(do func()) (stopped bool) {
	defer func() {
		if p := recover(); p != nil {
			if _, ours := p.(tooMuch); !ours {
				panic(p)
			}
			stopped = true
		}
	}()
	do()
	return false
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
			other, there := b[key]
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
			m.payText(len(key))
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
