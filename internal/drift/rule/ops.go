package rule

import (
	"cmp"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/expr-lang/expr/ast"
)

func (e *evaluation) binary(n *ast.BinaryNode) any {
	left := e.eval(n.Left)
	switch n.Operator {
	case "&&", "and":
		return left == true && e.eval(n.Right) == true
	case "||", "or":
		return left == true || e.eval(n.Right) == true
	case "??":
		if left != nil {
			return left
		}
		return e.eval(n.Right)
	}
	right := e.eval(n.Right)
	switch n.Operator {
	case "==":
		return e.Equal(left, right)
	case "!=":
		return !e.Equal(left, right)
	case "<", "<=", ">", ">=":
		return e.order(n.Operator, left, right)
	case "in":
		return e.in(left, right)
	case "matches":
		return e.matches(n, left)
	case "contains", "startsWith", "endsWith":
		return e.text(n.Operator, left, right)
	case "+":
		if a, ok := left.(string); ok {
			return e.join(a, right)
		}
	}
	return arithmetic(n.Operator, left, right)
}

// order compares two numbers or two texts; other values have no order.
func (e *evaluation) order(operator string, a, b any) bool {
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
		e.PayText(min(len(a), len(b)))
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
func (e *evaluation) in(a, b any) bool {
	switch b := b.(type) {
	case []any:
		for _, item := range b {
			if e.Equal(a, item) {
				return true
			}
		}
	case map[string]any:
		if key, ok := a.(string); ok {
			_, there := e.Member(b, key)
			return there
		}
	case string:
		return e.text("contains", b, a)
	}
	return false
}

func (e *evaluation) text(operator string, a, b any) bool {
	s, ok1 := a.(string)
	part, ok2 := b.(string)
	if !ok1 || !ok2 {
		return false
	}
	switch operator {
	case "startsWith":
		e.PayText(len(part))
		return strings.HasPrefix(s, part)
	case "endsWith":
		e.PayText(len(part))
		return strings.HasSuffix(s, part)
	}
	e.PayText(len(s))
	return strings.Contains(s, part)
}

func (e *evaluation) matches(n ast.Node, a any) bool {
	s, ok := a.(string)
	return ok && e.rule.patterns[n].Match(&e.Meter, s)
}

// join makes a longer text, and pays for its bytes.
func (e *evaluation) join(a string, b any) any {
	s, ok := b.(string)
	if !ok {
		return nil
	}
	e.MakeText(len(a) + len(s))
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

// call works out a function without a predicate.
func (e *evaluation) call(n *ast.BuiltinNode) any {
	x := e.eval(n.Arguments[0])
	switch n.Name {
	case "len":
		switch x := x.(type) {
		case string:
			e.PayText(len(x))
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
			e.join(s, "")
			e.Pay(len(s) / 8)
			return strings.ToLower(s)
		}
	case "keys":
		if m, ok := x.(map[string]any); ok {
			keys := e.Keys(m)
			e.Pay(len(keys))
			list := make([]any, 0, len(keys))
			for _, key := range keys {
				list = append(list, key)
			}
			return list
		}
	case "max", "min":
		a, ok1 := x.(float64)
		b, ok2 := e.eval(n.Arguments[1]).(float64)
		if ok1 && ok2 && n.Name == "max" {
			return max(a, b)
		}
		if ok1 && ok2 {
			return min(a, b)
		}
	}
	return nil
}
