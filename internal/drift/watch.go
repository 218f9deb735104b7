package drift

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/meter"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/rule"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/schema"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// New returns the watch that the store uses.
func New() observer.Watcher {
	return &watch{seed: maphash.MakeSeed(), compiled: map[uint64]*compiled{}}
}

// watch caches compiled policies, and keeps nothing else.
type watch struct {
	seed     maphash.Seed
	mu       sync.Mutex
	compiled map[uint64]*compiled
	bytes    int // of the policies in the cache
}

// The limits of the cache: the number of policies, and bytes of their schemas and rules.
// The compiled form takes about ten times as much memory.
const (
	maxCompiled      = 256
	maxCompiledBytes = 4 << 20
)

// compiled is the compiled part of a policy.
type compiled struct {
	once   sync.Once
	schema *schema.Schema // nil for none
	rules  []*rule.Rule
	err    error
}

var nothing compiled

// of returns the compiled form of a policy. It compiles each policy once. A caller with
// another policy does not wait for it.
func (w *watch) of(p *ckpt.Policy) *compiled {
	if p.Schema == nil && len(p.Rules) == 0 {
		return &nothing
	}
	c := w.entry(p)
	c.once.Do(func() { c.compile(p) })
	return c
}

func (w *watch) entry(p *ckpt.Policy) *compiled {
	key, size := w.key(p)
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.compiled[key]
	if c == nil {
		if len(w.compiled) >= maxCompiled || w.bytes+size > maxCompiledBytes {
			clear(w.compiled)
			w.bytes = 0
		}
		c = &compiled{}
		w.compiled[key], w.bytes = c, w.bytes+size
	}
	return c
}

// key identifies what is compiled of a policy; size is its length.
func (w *watch) key(p *ckpt.Policy) (key uint64, size int) {
	var h maphash.Hash
	h.SetSeed(w.seed)
	write := func(s string) {
		size += len(s)
		h.WriteString(s)
		h.WriteByte(0)
	}
	write(string(p.Schema))
	for i := range p.Rules {
		r := &p.Rules[i]
		for _, s := range []string{r.Name, r.When, string(r.Severity), r.Message} {
			write(s)
		}
	}
	return h.Sum64(), size
}

// compile compiles what a policy needs, or records what is wrong with it.
func (c *compiled) compile(p *ckpt.Policy) {
	c.err = ckpt.Errorf(ckpt.CodeInvalid, "the schema or a rule cannot be read") // this error stays if a library panics
	c.err = c.tryCompile(p)
}

func (c *compiled) tryCompile(p *ckpt.Policy) (err error) {
	if p.Schema != nil {
		if c.schema, err = schema.Compile(p.Schema); err != nil {
			return ckpt.Errorf(ckpt.CodeInvalid, "schema: %v", err)
		}
	}
	if c.rules, err = rule.Compile(p.Rules, measureNames()); err != nil {
		return ckpt.Errorf(ckpt.CodeInvalid, "%v", err)
	}
	return nil
}

// Step makes the print of a step.
func (w *watch) Step(ctx context.Context, p *ckpt.Policy, r observer.RuleRun, s *ckpt.Step) (print observer.StepPrint, err error) {
	print = printOf(s)
	print.Broken, print.Clear, err = rule.TryStep(ctx, w.of(p).rules, r, s)
	return print, err
}

// State makes the print of a state.
func (w *watch) State(ctx context.Context, p *ckpt.Policy, r observer.RuleRun, state, previous []byte,
	contentType string) (print observer.StatePrint, err error) {
	places, _ := r.Map.(*jsontext.Map)
	printState(&print, state, places, contentType)
	c := w.of(p)
	if c.schema != nil {
		if print.Broken, err = trySchema(ctx, c.schema, state, contentType); err != nil {
			return print, err
		}
		switch {
		case len(print.Broken) == 0:
			print.Clear = append(print.Clear, RuleSchema, RuleSchemaStopped)
		case print.Broken[0].Rule == RuleSchema:
			print.Clear = append(print.Clear, RuleSchemaStopped)
		}
	}
	broken, clear, err := rule.TryState(ctx, c.rules, r, state, previous, contentType)
	print.Broken, print.Clear = append(print.Broken, broken...), append(print.Clear, clear...)
	return print, err
}

// The limits of what a schema is tried on: bytes of a state, and the number of its
// values, each of which takes memory.
const (
	MaxSchemaState  = 32 << 20
	maxSchemaValues = 2_000_000
)

// trySchema returns how a state violates a schema. A state that is not JSON violates
// every schema.
func trySchema(ctx context.Context, s *schema.Schema, state []byte, contentType string) ([]observer.Found, error) {
	if len(state) > MaxSchemaState {
		why := fmt.Sprintf("the state has %s, and a schema is tried on at most %s", phrase.Bytes(int64(len(state))), phrase.Bytes(MaxSchemaState))
		return []observer.Found{schemaStopped(why)}, nil
	}
	if !ckpt.IsJSON(contentType) {
		return []observer.Found{schemaBroken([]schema.Violation{{What: "is not JSON"}})}, nil
	}
	if n := valuesIn(state); n > maxSchemaValues {
		return []observer.Found{schemaStopped(fmt.Sprintf("the state has %d values, and a schema is tried on at most %d", n, maxSchemaValues))}, nil
	}
	value, err := meter.Value(state)
	if err != nil {
		return []observer.Found{schemaBroken([]schema.Violation{{What: "is not JSON"}})}, nil
	}
	broken, _, stopped, err := s.Try(ctx, value, schema.MaxWork)
	switch {
	case err != nil:
		return nil, err
	case stopped:
		return []observer.Found{schemaStopped(fmt.Sprintf("it needs more than %d units of work on this state of %s", schema.MaxWork,
			phrase.Bytes(int64(len(state)))))}, nil
	case len(broken) > 0:
		return []observer.Found{schemaBroken(broken)}, nil
	}
	return nil, nil
}

// valuesIn returns the number of values in a JSON text, or one more for each empty array
// or object.
func valuesIn(text []byte) int {
	n := 1
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i = jsontext.StringEnd(text, i) - 1
		case '[', '{', ',':
			n++
		}
	}
	return n
}

func schemaBroken(broken []schema.Violation) observer.Found {
	places := ""
	for i, v := range broken {
		if i > 0 {
			places += "; "
		}
		places += phrase.Cut(placeOf(v.Pointer)) + " " + v.What
	}
	count := phrase.Count(len(broken), "place")
	return observer.Found{
		Rule: RuleSchema, Severity: ckpt.SeverityCritical,
		Message: fmt.Sprintf("The state does not match the agent's schema in %s: %s.", count, places),
		Advice:  fmt.Sprintf("Your state breaks its schema in %s: %s. Fix it before you save again.", count, places),
		Evidence: ckpt.Evidence{
			Threshold: "no place that breaks the schema", Observed: count, Pointer: broken[0].Pointer,
		},
	}
}

func placeOf(pointer string) string {
	if pointer == "" {
		return "the state"
	}
	return pointer
}

func schemaStopped(why string) observer.Found {
	return observer.Found{
		Rule: RuleSchemaStopped, Severity: ckpt.SeverityWarn,
		Message: fmt.Sprintf("The check of the agent's schema was stopped and has no verdict: %s.", why),
		Advice:  fmt.Sprintf("The schema in your policy could not be checked: %s. Save a smaller state, or set a simpler schema.", why),
		Evidence: ckpt.Evidence{Threshold: fmt.Sprintf("at most %d units of work and %s", schema.MaxWork,
			phrase.Bytes(MaxSchemaState)), Observed: "stopped"},
	}
}

// Check refuses a policy that cannot be used. The error names the place.
func (w *watch) Check(p *ckpt.Policy) error {
	if err := w.of(p).err; err != nil {
		return err
	}
	return checkDetectors(p)
}

// Watch begins to watch a run.
func (w *watch) Watch(p *ckpt.Policy, past observer.RunPast) observer.RunWatch {
	return newRun(p, past)
}
