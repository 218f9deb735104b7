package drift

import (
	"encoding/json"
	"hash/maphash"
	"sync"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// New is the watch that the store uses.
func New() ckpt.DriftWatch { return &watch{seed: maphash.MakeSeed(), compiled: map[uint64]*compiled{}} }

// watch keeps what it has compiled of policies, and nothing else.
type watch struct {
	seed     maphash.Seed
	mu       sync.Mutex
	compiled map[uint64]*compiled
}

// maxCompiled is how many policies are kept compiled.
const maxCompiled = 256

// compiled is the part of a policy that has to be compiled.
type compiled struct {
	schema *schema // nil for none
	rules  []*rule
	err    error
}

var nothing compiled

// of is what a policy compiles to, made once.
func (w *watch) of(p *ckpt.Policy) *compiled {
	if p.Schema == nil && len(p.Rules) == 0 {
		return &nothing
	}
	key := w.key(p)
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.compiled[key]
	if c == nil {
		if len(w.compiled) >= maxCompiled {
			clear(w.compiled)
		}
		c = compilePolicy(p)
		w.compiled[key] = c
	}
	return c
}

func (w *watch) key(p *ckpt.Policy) uint64 {
	var h maphash.Hash
	h.SetSeed(w.seed)
	h.Write(p.Schema)
	for i := range p.Rules {
		r := &p.Rules[i]
		for _, s := range []string{r.Name, r.When, string(r.Severity), r.Message} {
			h.WriteByte(0)
			h.WriteString(s)
		}
	}
	return h.Sum64()
}

func compilePolicy(p *ckpt.Policy) *compiled {
	c := &compiled{}
	if p.Schema != nil {
		if c.schema, c.err = compileSchema(p.Schema); c.err != nil {
			c.err = ckpt.Errorf(ckpt.CodeInvalid, "schema: %v", c.err)
			return c
		}
	}
	if c.rules, c.err = compileRules(p.Rules); c.err != nil {
		c.err = ckpt.Errorf(ckpt.CodeInvalid, "%v", c.err)
	}
	return c
}

// Step makes the print of a step.
func (w *watch) Step(p *ckpt.Policy, r ckpt.RuleRun, s *ckpt.Step) ckpt.StepPrint {
	print := printOf(s)
	print.Broken = tryStep(w.of(p).rules, r, s)
	return print
}

// State makes the print of a state.
func (w *watch) State(p *ckpt.Policy, r ckpt.RuleRun, state, previous []byte, contentType string) ckpt.StatePrint {
	var print ckpt.StatePrint
	printState(&print, state, r.Map, contentType)
	c := w.of(p)
	if c.schema != nil {
		print.Broken = trySchema(c.schema, state, contentType)
	}
	print.Broken = append(print.Broken, tryState(c.rules, r, state, previous, contentType)...)
	return print
}

// MaxSchemaState is the size of the largest state that a schema is tried on.
const MaxSchemaState = 32 << 20

// trySchema answers how a state breaks a schema. One that is no JSON breaks
// every schema.
func trySchema(s *schema, state []byte, contentType string) []ckpt.Found {
	if len(state) > MaxSchemaState {
		return []ckpt.Found{schemaStopped(sentence("the state has %s, and a schema is tried on at most %s", byteText(int64(len(state))), byteText(MaxSchemaState)))}
	}
	var value any
	if !ckpt.IsJSON(contentType) || json.Unmarshal(state, &value) != nil {
		return []ckpt.Found{schemaBroken([]violation{{"", "is no JSON"}})}
	}
	broken, stopped := s.try(value)
	switch {
	case stopped:
		return []ckpt.Found{schemaStopped(sentence("it needs more than %d units of work on this state of %s", MaxSchemaWork, byteText(int64(len(state)))))}
	case len(broken) > 0:
		return []ckpt.Found{schemaBroken(broken)}
	}
	return nil
}

func schemaBroken(broken []violation) ckpt.Found {
	places := ""
	for i, v := range broken {
		if i > 0 {
			places += "; "
		}
		places += cut(placeOf(v.pointer)) + " " + v.what
	}
	return ckpt.Found{
		Rule: RuleSchema, Severity: ckpt.SeverityCritical,
		Message:  sentence("The state breaks the agent's schema in %s: %s.", count(len(broken), "place"), places),
		Advice:   sentence("Your state breaks its schema in %s: %s. Mend it before you save again.", count(len(broken), "place"), places),
		Evidence: ckpt.Evidence{Threshold: "no place that breaks the schema", Observed: count(len(broken), "place"), Pointer: broken[0].pointer},
	}
}

func placeOf(pointer string) string {
	if pointer == "" {
		return "the state"
	}
	return pointer
}

func schemaStopped(why string) ckpt.Found {
	return ckpt.Found{
		Rule: RuleSchemaStopped, Severity: ckpt.SeverityWarn,
		Message:  sentence("The agent's schema was stopped and says nothing: %s.", why),
		Advice:   sentence("The schema in your policy could not be tried: %s. Save a smaller state, or a simpler schema.", why),
		Evidence: ckpt.Evidence{Threshold: sentence("at most %d units of work and %s", MaxSchemaWork, byteText(MaxSchemaState)), Observed: "stopped"},
	}
}

// Check refuses a policy that cannot be used, with the place.
func (w *watch) Check(p *ckpt.Policy) error {
	if err := w.of(p).err; err != nil {
		return err
	}
	return checkDetectors(p)
}

// Watch begins to watch a run.
func (w *watch) Watch(p *ckpt.Policy, past ckpt.RunPast) ckpt.RunWatch { return newRun(p, past) }
