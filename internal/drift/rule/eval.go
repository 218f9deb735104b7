package rule

import (
	"context"
	"math"

	"github.com/ckptsidecar/ckptsidecar/internal/drift/meter"
	"github.com/expr-lang/expr/ast"
)

// What rules may cost: units of work, see meter, and bytes of text.
const (
	MaxWork         = 200_000   // of one rule, at one step or state
	MaxWorkTogether = 1_000_000 // of all rules of a policy together
	maxText         = 4 << 20
)

// evaluation is one try of one rule.
type evaluation struct {
	rule *Rule
	meter.Meter
	names map[string]any // state, previous, step, run, measures
	lets  []let
	items []item // of the predicates that are being worked out, innermost last
}

type let struct {
	name  string
	value any
}

type item struct {
	value any
	index int
}

// holds works out a rule. stopped says that it cost more than the work; left is
// what it did not need; err is why ctx ended it.
func (r *Rule) holds(ctx context.Context, names map[string]any, work int) (yes, stopped bool, left int, err error) {
	e := &evaluation{rule: r, Meter: meter.New(ctx, work, maxText), names: names}
	stopped, err = meter.Run(func() { yes = e.eval(r.root) == true })
	return yes && !stopped && err == nil, stopped, e.Left(), err
}

// eval works out a node. Values are nil, bool, float64, string, []any and
// map[string]any. What is missing, and what cannot be worked out, is nil.
func (e *evaluation) eval(n ast.Node) any {
	e.Pay(1)
	switch n := n.(type) {
	case *ast.BoolNode:
		return n.Value
	case *ast.IntegerNode:
		return float64(n.Value)
	case *ast.FloatNode:
		return n.Value
	case *ast.StringNode:
		return n.Value
	case *ast.IdentifierNode:
		return e.named(n.Value)
	case *ast.PointerNode:
		at := e.items[len(e.items)-1]
		if n.Name == "index" {
			return float64(at.index)
		}
		return at.value
	case *ast.UnaryNode:
		return unary(n.Operator, e.eval(n.Node))
	case *ast.BinaryNode:
		return e.binary(n)
	case *ast.ChainNode:
		return e.eval(n.Node)
	case *ast.MemberNode:
		return e.part(e.eval(n.Node), e.eval(n.Property))
	case *ast.ConditionalNode:
		if e.eval(n.Cond) == true {
			return e.eval(n.Exp1)
		}
		return e.eval(n.Exp2)
	case *ast.ArrayNode:
		e.Pay(len(n.Nodes))
		list := make([]any, 0, len(n.Nodes))
		for _, item := range n.Nodes {
			list = append(list, e.eval(item))
		}
		return list
	case *ast.VariableDeclaratorNode:
		e.lets = append(e.lets, let{n.Name, e.eval(n.Value)})
		value := e.eval(n.Expr)
		e.lets = e.lets[:len(e.lets)-1]
		return value
	case *ast.BuiltinNode:
		if functions[n.Name].predicate {
			return e.overList(n)
		}
		return e.call(n)
	}
	return nil
}

func (e *evaluation) named(name string) any {
	e.Pay(len(e.lets) / 4)
	for i := len(e.lets) - 1; i >= 0; i-- {
		if e.lets[i].name == name {
			return e.lets[i].value
		}
	}
	return e.names[name]
}

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

// part is what stands under a key or at an index. Below 0 counts from the end.
func (e *evaluation) part(of, property any) any {
	switch of := of.(type) {
	case map[string]any:
		if key, ok := property.(string); ok {
			value, _ := e.Member(of, key)
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

// overList works out a predicate for the items of a list.
func (e *evaluation) overList(n *ast.BuiltinNode) any {
	list, ok := e.eval(n.Arguments[0]).([]any)
	if !ok {
		return nil
	}
	body := n.Arguments[1]
	if p, ok := body.(*ast.PredicateNode); ok {
		body = p.Node
	}
	fold := newFold(n.Name)
	for i, value := range list {
		e.Pay(2) // it may become part of another list
		e.items = append(e.items, item{value, i})
		out := e.eval(body)
		e.items = e.items[:len(e.items)-1]
		if fold.add(value, out) {
			break
		}
	}
	return fold.result()
}

// fold is what a function over a list has so far.
type fold struct {
	name  string
	count int
	sum   float64
	list  []any
	found any
}

func newFold(name string) *fold { return &fold{name: name, list: []any{}} }

// add takes in an item and what the predicate says of it, and says whether the
// answer is known.
func (f *fold) add(value, out any) (done bool) {
	yes := out == true
	if yes != (f.name == "all") { // all counts the items that do not hold
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
