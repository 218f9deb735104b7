package rule

import (
	"context"

	"github.com/ckptsidecar/ckptsidecar/internal/drift/meter"
	"github.com/expr-lang/expr/ast"
)

// What rules may cost: units of work (see meter) and bytes of text.
const (
	MaxWork         = 200_000   // of one rule, at one step or state
	MaxWorkTogether = 1_000_000 // of all rules of a policy together
	maxText         = 4 << 20
)

// evaluation is one attempt of one rule.
type evaluation struct {
	rule *Rule
	meter.Meter
	names map[string]any // state, previous, step, run, measures
	lets  []let
	items []item // of the predicates that are being evaluated, innermost last
}

type let struct {
	name  string
	value any
}

type item struct {
	value any
	index int
}

// holds evaluates a rule. stopped is true if it cost more than work. left is the work that it did not
// need. err is the error of ctx, if ctx ended the evaluation.
func (r *Rule) holds(ctx context.Context, names map[string]any, work int) (yes, stopped bool, left int, err error) {
	e := &evaluation{rule: r, Meter: meter.New(ctx, work, maxText), names: names}
	stopped, err = meter.Run(func() { yes = e.eval(r.root) == true })
	return yes && !stopped && err == nil, stopped, e.Left(), err
}

// eval evaluates a node. Values are nil, bool, float64, string, []any and map[string]any. A value that is
// missing, or that cannot be computed, is nil.
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
		return part(&e.Meter, e.eval(n.Node), e.eval(n.Property))
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

// binary evaluates an operator with two sides. A logical operator evaluates its right side only if that
// matters.
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
	if n.Operator == "matches" {
		text, ok := left.(string)
		return ok && e.rule.patterns[n].Match(&e.Meter, text)
	}
	return binary(&e.Meter, n.Operator, left, right)
}

// call evaluates a function without a predicate.
func (e *evaluation) call(n *ast.BuiltinNode) any {
	x := e.eval(n.Arguments[0])
	var y any
	if len(n.Arguments) > 1 {
		y = e.eval(n.Arguments[1])
	}
	return call(&e.Meter, n.Name, x, y)
}

// overList evaluates a predicate for the items of a list.
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
		e.Pay(2) // it can become part of another list
		e.items = append(e.items, item{value, i})
		out := e.eval(body)
		e.items = e.items[:len(e.items)-1]
		if fold.add(value, out) {
			break
		}
	}
	return fold.result()
}
