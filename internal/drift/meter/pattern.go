package meter

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
)

// The limits of patterns.
const (
	maxPattern     = 2000    // instructions of one
	maxPatternText = 4 << 10 // bytes of one
	MaxPatterns    = 50_000  // instructions of all in a schema, or in the rules of a policy
)

// Pattern is a regular expression with its number of instructions.
type Pattern struct {
	*regexp.Regexp
	instructions int
}

// PatternBudget is the number of instructions that further patterns can have.
type PatternBudget int

// Compile compiles a pattern. It refuses a pattern that is wrong or too large.
func (b *PatternBudget) Compile(text string) (*Pattern, error) {
	if len(text) > maxPatternText {
		return nil, errors.New("the pattern is too large")
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("the pattern is wrong: %w", err)
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil || len(program.Inst) > maxPattern {
		return nil, errors.New("the pattern is too large")
	}
	if *b -= PatternBudget(len(program.Inst)); *b < 0 {
		return nil, errors.New("the patterns are too large together")
	}
	compiled, err := regexp.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("the pattern is wrong: %w", err)
	}
	return &Pattern{compiled, len(program.Inst)}, nil
}

// Match pays before it matches: in the worst case it tries every instruction at every
// byte, and first creates a machine of that size.
func (p *Pattern) Match(m *Meter, s string) bool {
	m.Pay(4 + (len(s)+8)*p.instructions/8)
	return p.MatchString(s)
}
