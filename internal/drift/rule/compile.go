package rule

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/meter"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
)

// The limits of the tree of an expression.
const (
	maxNodes = 1000
	maxDepth = 100
)

// Rule is a rule of the user, ready to be tried. The language is that of expr-lang. Only
// the parser of expr-lang is used: this package evaluates the tree itself, so that every
// operation is paid for before it is done.
type Rule struct {
	ckpt.Rule
	root                ast.Node
	patterns            map[ast.Node]*meter.Pattern
	state, before, step bool // the rule needs the state, the previous state, a step
}

// compile makes a rule from its expression. An error says what is wrong and where.
func compile(r ckpt.Rule, members map[string][]string, budget *meter.PatternBudget) (*Rule, error) {
	tree, err := parse(r.When)
	if err != nil {
		return nil, err
	}
	c := &checker{rule: &Rule{Rule: r, root: tree.Node, patterns: map[ast.Node]*meter.Pattern{}}, members: members, budget: budget}
	c.check(tree.Node, nil, 0, 0)
	if c.err != nil {
		return nil, placed(c.err.Bind(tree.Source))
	}
	return c.rule, nil
}

// parse parses an expression. If the parser panics, it has not understood the expression.
func parse(when string) (tree *parser.Tree, err error) {
	defer func() {
		if p := recover(); p != nil {
			tree, err = nil, fmt.Errorf("it cannot be read")
		}
	}()
	tree, err = parser.Parse(when)
	var at *file.Error
	if errors.As(err, &at) {
		return nil, placed(at)
	}
	if err == nil && tree.Node == nil {
		err = errors.New("it is empty")
	}
	return tree, err
}

func placed(e *file.Error) error {
	return fmt.Errorf("line %d, column %d: %s", e.Line, e.Column+1, e.Message)
}

// checker checks a tree before it is used for the first time.
type checker struct {
	rule    *Rule
	members map[string][]string // of step, run and measures
	budget  *meter.PatternBudget
	nodes   int
	err     *file.Error
}

func (c *checker) refuse(n ast.Node, format string, args ...any) {
	if c.err == nil {
		c.err = &file.Error{Location: n.Location(), Message: fmt.Sprintf(format, args...)}
	}
}

// check checks a node. lets are the names that let has defined. inside is the number of
// predicates around the node.
func (c *checker) check(n ast.Node, lets []string, inside, depth int) {
	if c.err != nil {
		return
	}
	if c.nodes++; c.nodes > maxNodes || depth > maxDepth {
		c.refuse(n, "the expression is too large: at most %d parts, %d deep", maxNodes, maxDepth)
		return
	}
	down := func(nodes ...ast.Node) {
		for _, n := range nodes {
			c.check(n, lets, inside, depth+1)
		}
	}
	switch n := n.(type) {
	case *ast.NilNode, *ast.BoolNode, *ast.IntegerNode, *ast.FloatNode, *ast.StringNode:
	case *ast.IdentifierNode:
		c.checkName(n, lets)
	case *ast.PointerNode:
		if inside == 0 || n.Name != "" && n.Name != "index" {
			c.refuse(n, "#%s is not known here", n.Name)
		}
	case *ast.UnaryNode:
		if !slices.Contains([]string{"!", "not", "-", "+"}, n.Operator) {
			c.refuse(n, "the operator %s is not known", n.Operator)
		}
		down(n.Node)
	case *ast.BinaryNode:
		c.checkOperator(n)
		down(n.Left, n.Right)
	case *ast.ChainNode:
		down(n.Node)
	case *ast.MemberNode:
		c.checkMember(n, lets)
		down(n.Node, n.Property)
	case *ast.ConditionalNode:
		down(n.Cond, n.Exp1, n.Exp2)
	case *ast.ArrayNode:
		down(n.Nodes...)
	case *ast.VariableDeclaratorNode:
		down(n.Value)
		c.check(n.Expr, append(slices.Clip(lets), n.Name), inside, depth+1)
	case *ast.PredicateNode:
		c.check(n.Node, lets, inside+1, depth+1)
	case *ast.BuiltinNode:
		c.checkFunction(n)
		down(n.Arguments...)
	case *ast.CallNode:
		c.refuse(n, "the function %s is not known: there are %s", phrase.Cut(fmt.Sprint(n.Callee)), strings.Join(functionNames(), ", "))
	default:
		c.refuse(n, "this is not part of the language of rules")
	}
}

func (c *checker) checkName(n *ast.IdentifierNode, lets []string) {
	switch {
	case slices.Contains(lets, n.Value):
		return
	case n.Value == "state":
		c.rule.state = true
	case n.Value == "previous":
		c.rule.state, c.rule.before = true, true
	case n.Value == "step":
		c.rule.step = true
	case n.Value == "run", n.Value == "measures":
	default:
		c.refuse(n, "%s is not known: there are state, previous, step, run and measures", phrase.Cut(n.Value))
	}
}

// checkMember refuses misspelled members of known objects.
func (c *checker) checkMember(n *ast.MemberNode, lets []string) {
	of, isName := n.Node.(*ast.IdentifierNode)
	name, isText := n.Property.(*ast.StringNode)
	if !isName || !isText || slices.Contains(lets, of.Value) {
		return
	}
	if known := c.members[of.Value]; known != nil && !slices.Contains(known, name.Value) {
		c.refuse(n, "%s has no %s: it has %s", of.Value, phrase.Cut(name.Value), strings.Join(known, ", "))
	}
}

func (c *checker) checkOperator(n *ast.BinaryNode) {
	switch n.Operator {
	case "==", "!=", "<", "<=", ">", ">=", "&&", "and", "||", "or", "??", "+", "-", "*", "/", "%", "in", "contains", "startsWith", "endsWith":
	case "matches":
		c.checkPattern(n)
	default:
		c.refuse(n, "the operator %s is not known", n.Operator)
	}
}

// checkPattern compiles a pattern. The pattern must be in the expression itself: a
// pattern from a state could be anything.
func (c *checker) checkPattern(n *ast.BinaryNode) {
	text, ok := n.Right.(*ast.StringNode)
	if !ok {
		c.refuse(n.Right, "the pattern of matches must be a text in the expression")
		return
	}
	p, err := c.budget.Compile(text.Value)
	if err != nil {
		c.refuse(n.Right, "%v", err)
		return
	}
	c.rule.patterns[n] = p
}

func (c *checker) checkFunction(n *ast.BuiltinNode) {
	f, known := functions[n.Name]
	if !known {
		c.refuse(n, "the function %s is not known: there are %s", n.Name, strings.Join(functionNames(), ", "))
		return
	}
	if len(n.Arguments) != f.arguments {
		c.refuse(n, "%s takes %s", n.Name, phrase.Count(f.arguments, "argument"))
	}
}

// functions are the functions that an expression can call.
var functions = map[string]struct {
	arguments int
	predicate bool
}{
	"all": {2, true}, "any": {2, true}, "none": {2, true}, "one": {2, true}, "count": {2, true}, "filter": {2, true},
	"map": {2, true}, "find": {2, true}, "sum": {2, true},
	"len": {1, false}, "abs": {1, false}, "lower": {1, false}, "keys": {1, false}, "max": {2, false}, "min": {2, false},
}

func functionNames() []string { return slices.Sorted(maps.Keys(functions)) }
