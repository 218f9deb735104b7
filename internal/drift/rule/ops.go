package rule

import (
	"cmp"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/ckptsidecar/ckptsidecar/internal/drift/meter"
)

// unary applies an operator with one side.
func unary(operator string, x any) any {
	switch operator {
	case "!", "not":
		return x != true
	case "-":
		if f, ok := x.(float64); ok {
			return -f
		}
		return nil
	}
	if f, ok := x.(float64); ok {
		return f
	}
	return nil
}

// binary applies an operator with two sides.
func binary(m *meter.Meter, operator string, left, right any) any {
	switch operator {
	case "==":
		return m.Equal(left, right)
	case "!=":
		return !m.Equal(left, right)
	case "<", "<=", ">", ">=":
		return order(m, operator, left, right)
	case "in":
		return in(m, left, right)
	case "contains", "startsWith", "endsWith":
		return text(m, operator, left, right)
	case "+":
		if a, ok := left.(string); ok {
			return join(m, a, right)
		}
	}
	return arithmetic(operator, left, right)
}

// order compares two numbers or two texts; other values have no order.
func order(m *meter.Meter, operator string, a, b any) bool {
	var sign int
	switch a := a.(type) {
	case float64:
		b, ok := b.(float64)
		if !ok || math.IsNaN(a) || math.IsNaN(b) {
			return false
		}
		sign = cmp.Compare(a, b)
	case string:
		b, ok := b.(string)
		if !ok {
			return false
		}
		m.PayText(min(len(a), len(b)))
		sign = strings.Compare(a, b)
	default:
		return false
	}
	switch operator {
	case "<":
		return sign < 0
	case "<=":
		return sign <= 0
	case ">":
		return sign > 0
	}
	return sign >= 0
}

// in finds a value in an array, a key in an object, or a text in a text.
func in(m *meter.Meter, a, b any) bool {
	switch b := b.(type) {
	case []any:
		for _, item := range b {
			if m.Equal(a, item) {
				return true
			}
		}
	case map[string]any:
		if key, ok := a.(string); ok {
			_, there := m.Member(b, key)
			return there
		}
	case string:
		return text(m, "contains", b, a)
	}
	return false
}

func text(m *meter.Meter, operator string, a, b any) bool {
	s, ok1 := a.(string)
	part, ok2 := b.(string)
	if !ok1 || !ok2 {
		return false
	}
	switch operator {
	case "startsWith":
		m.PayText(len(part))
		return strings.HasPrefix(s, part)
	case "endsWith":
		m.PayText(len(part))
		return strings.HasSuffix(s, part)
	}
	m.PayText(len(s))
	return strings.Contains(s, part)
}

// join concatenates texts, and pays for the bytes.
func join(m *meter.Meter, a string, b any) any {
	s, ok := b.(string)
	if !ok {
		return nil
	}
	m.MakeText(len(a) + len(s))
	return a + s
}

func arithmetic(operator string, a, b any) any {
	x, ok1 := a.(float64)
	y, ok2 := b.(float64)
	if !ok1 || !ok2 {
		return nil
	}
	switch operator {
	case "+":
		return x + y
	case "-":
		return x - y
	case "*":
		return x * y
	case "/":
		if y == 0 {
			return nil
		}
		return x / y
	case "%":
		if y == 0 {
			return nil
		}
		return math.Mod(x, y)
	}
	return nil
}

// part returns the value under a key or at an index. An index below 0 counts from the
// end.
func part(m *meter.Meter, of, property any) any {
	switch of := of.(type) {
	case map[string]any:
		if key, ok := property.(string); ok {
			value, _ := m.Member(of, key)
			return value
		}
	case []any:
		f, ok := property.(float64)
		if !ok || f != math.Trunc(f) {
			return nil
		}
		if f < 0 {
			f += float64(len(of))
		}
		if f >= 0 && f < float64(len(of)) {
			return of[int(f)]
		}
	}
	return nil
}

// call applies a function without a predicate to its one or two arguments.
func call(m *meter.Meter, name string, x, y any) any {
	switch name {
	case "len":
		switch x := x.(type) {
		case string:
			m.PayText(len(x))
			return float64(utf8.RuneCountInString(x))
		case []any:
			return float64(len(x))
		case map[string]any:
			return float64(len(x))
		}
	case "abs":
		if f, ok := x.(float64); ok {
			return math.Abs(f)
		}
	case "lower":
		if s, ok := x.(string); ok {
			join(m, s, "")
			m.Pay(len(s) / 8)
			return strings.ToLower(s)
		}
	case "keys":
		if object, ok := x.(map[string]any); ok {
			keys := m.Keys(object)
			m.Pay(len(keys))
			list := make([]any, 0, len(keys))
			for _, key := range keys {
				list = append(list, key)
			}
			return list
		}
	case "max", "min":
		a, ok1 := x.(float64)
		b, ok2 := y.(float64)
		if ok1 && ok2 && name == "max" {
			return max(a, b)
		}
		if ok1 && ok2 {
			return min(a, b)
		}
	}
	return nil
}

// fold is the intermediate result of a function over a list.
type fold struct {
	name  string
	count int
	sum   float64
	list  []any
	found any
}

func newFold(name string) *fold { return &fold{name: name, list: []any{}} }

// add adds an item and the predicate's result for it. It returns whether the answer is
// already known.
func (f *fold) add(value, out any) (done bool) {
	yes := out == true
	if yes != (f.name == "all") { // all counts the items for which the predicate is false
		f.count++
	}
	switch f.name {
	case "all":
		return !yes
	case "any", "none":
		return yes
	case "one":
		return f.count > 1
	case "find":
		if yes {
			f.found = value
		}
		return yes
	case "filter":
		if yes {
			f.list = append(f.list, value)
		}
	case "map":
		f.list = append(f.list, out)
	case "sum":
		x, _ := out.(float64)
		f.sum += x
	}
	return false
}

func (f *fold) result() any {
	switch f.name {
	case "all", "none":
		return f.count == 0
	case "any":
		return f.count > 0
	case "one":
		return f.count == 1
	case "count":
		return float64(f.count)
	case "sum":
		return f.sum
	case "find":
		return f.found
	}
	return f.list
}
