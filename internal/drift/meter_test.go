package drift

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// many is a JSON array or object of n parts, which part makes.
func many(open string, n int, part func(i int) string, end string) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = part(i)
	}
	return open + strings.Join(parts, ",") + end
}

func always(s string) func(int) string { return func(int) string { return s } }

// hostileSchema is a schema and a state that make one loop of the evaluator
// work as hard as it can.
type hostileSchema struct{ name, schema, state string }

// hostileSchemas has a case for each loop, and one first that is known to pay.
func hostileSchemas() []hostileSchema {
	const wide = 2000
	long := strings.Repeat("k", 50_000)
	numbers := many("[", 4*wide, func(i int) string { return fmt.Sprint(i) }, "]")
	object := many("{", wide, func(i int) string { return fmt.Sprintf(`"key%d":%d`, i, i) }, "}")
	longKeys := many("{", 20, func(i int) string { return fmt.Sprintf(`"%s%d":%d`, long, i, i) }, "}")
	shortTexts := many("[", 4*wide, always(`"aaaaaaa"`), "]")
	all := func(part string) string { return many(`{"allOf":[`, 300, always(part), "]}") }
	nested := func(depth int, part string) string {
		return strings.Repeat(`{"allOf":[`, depth) + part + strings.Repeat(`]}`, depth)
	}
	return []hostileSchema{
		{"all of", all(`{"items":{"type":"integer"}}`), numbers},
		{"enum", many(`{"items":{"enum":[`, 500, func(i int) string { return fmt.Sprint(-i) }, "]}}"), numbers},
		{"types", all(`{"items":{"type":["integer","integer","integer","integer","number","null","string","string"]}}`), numbers},
		{"types that do not fit", all(`{"not":{"items":{"type":["array","null","string","array","null","string"]}}}`), numbers},
		{"merged names", many(`{"unevaluatedProperties":true,"anyOf":[`, 100, always(nested(10, `{"properties":{},"patternProperties":{"^k":true}}`)), "]}"), object},
		{"merged items", many(`{"unevaluatedItems":true,"anyOf":[`, 100, always(nested(10, `{"prefixItems":[true],"contains":true}`)), "]}"), numbers},
		{"unevaluated names", all(`{"patternProperties":{"^k":true},"unevaluatedProperties":false}`), object},
		{"unevaluated items", all(`{"contains":true,"unevaluatedItems":false}`), numbers},
		{"items without a part", all(`{"prefixItems":[true]}`), numbers},
		{"unique", all(`{"uniqueItems":true}`), numbers},
		{"contains", all(`{"contains":{"const":-1},"minContains":0}`), numbers},
		{"sorted names", all(`{"propertyNames":true}`), object},
		{"long names", all(`{"propertyNames":true}`), longKeys},
		{"long pointers", `{"$ref":"#/$defs/a","$defs":{"a":{"additionalProperties":{"$ref":"#/$defs/a"},"items":{"type":"integer"}}}}`,
			strings.Repeat(`{"`+long+`":`, 10) + numbers + strings.Repeat(`}`, 10)},
		{"required", many(`{"items":{"required":[`, 1000, func(i int) string { return fmt.Sprintf(`"a%d"`, i) }, "]}}"), many("[", wide, always(`{"b":1}`), "]")},
		{"long required", `{"items":{"required":["` + long + `"]}}`, many("[", wide, always(`{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1}`), "]")},
		{"dependent names", many(`{"items":{"dependentRequired":{`, 1000, func(i int) string { return fmt.Sprintf(`"a%d":["b"]`, i) }, "}}}"), many("[", wide, always(`{}`), "]")},
		{"dependent schemas", many(`{"items":{"dependentSchemas":{`, 1000, func(i int) string { return fmt.Sprintf(`"a%d":true`, i) }, "}}}"), many("[", wide, always(`{}`), "]")},
		{"multiples", all(`{"items":{"multipleOf":3,"minimum":1,"maximum":5,"exclusiveMinimum":2,"exclusiveMaximum":4}}`), numbers},
		{"lengths", all(`{"items":{"minLength":3,"maxLength":4}}`), shortTexts},
		{"pattern on short texts", `{"items":{"pattern":"(a?){400}c"}}`, shortTexts},
		{"pattern on texts", `{"items":{"pattern":"(a?){200}c"}}`, many("[", 100, always(`"`+strings.Repeat("a", 500)+`"`), "]")},
		{"pattern on long texts", `{"items":{"pattern":"(a?){100}c"}}`, many("[", 50, always(`"`+strings.Repeat("a", 20_000)+`"`), "]")},
		{"pattern of one step", `{"items":{"pattern":"^(ab?){300}$"}}`, many("[", 200, always(`"`+strings.Repeat("a", 300)+`"`), "]")},
		{"small pattern", all(`{"items":{"pattern":"^a+$"}}`), shortTexts},
		{"patterns of names", many(`{"patternProperties":{`, 300, func(i int) string { return fmt.Sprintf(`"(k|e|y|[0-9]){1,9}x%d":true`, i) }, "}}"), object},
		{"doubling", `{"items":{"allOf":[{"$ref":"#"},{"$ref":"#"}]}}`, strings.Repeat("[", 60) + strings.Repeat("]", 60)},
		{"equal objects", all(`{"items":{"const":` + object + `}}`), many("[", 20, always(object), "]")},
	}
}

// unitCost is what a unit of work costs in a case: the quickest of some tries,
// since other programs take their time too.
type unitCost struct {
	name string
	ns   float64
}

// unitOf tries something that pays. try answers what it paid.
func unitOf(name string, try func() int) unitCost {
	least, paid := time.Duration(0), 0
	for range 5 {
		began := time.Now()
		paid = try()
		if took := time.Since(began); least == 0 || took < least {
			least = took
		}
	}
	return unitCost{name, float64(least.Nanoseconds()) / float64(max(1, paid))}
}

// judgeUnits compares the time that a unit of work takes in each case with that
// of the first, which is known to pay. All are of one process, so that the speed of a
// machine does not matter. A loop that does not pay takes hundreds of times as
// long for a unit.
func judgeUnits(t *testing.T, costs []unitCost) {
	t.Helper()
	const bound = 30
	first := costs[0]
	for _, c := range costs {
		t.Logf("%7.1f ns a unit: %s", c.ns, c.name)
		if c.ns > bound*first.ns {
			t.Errorf("%s: a unit of work takes %.0f ns, and %.0f ns in %s", c.name, c.ns, first.ns, first.name)
		}
	}
}

// Every loop of the evaluator of schemas pays for what it does.
func TestSchemaWorkIsPaidFor(t *testing.T) {
	const work = 200_000
	var costs []unitCost
	for _, c := range hostileSchemas() {
		s := schemaOf(t, c.schema)
		var value any
		if err := json.Unmarshal([]byte(c.state), &value); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		costs = append(costs, unitOf(c.name, func() int {
			_, left, _, err := s.tryFor(t.Context(), value, work)
			if err != nil {
				t.Fatal(err)
			}
			return work - left
		}))
	}
	judgeUnits(t, costs)
}

// And so does every loop of the language of rules.
func TestRuleWorkIsPaidFor(t *testing.T) {
	long := strings.Repeat("k", 1_000_000)
	names := map[string]any{"state": decoded([]byte(`{"l":` + many("[", 20_000, func(i int) string { return fmt.Sprint(i) }, "]") +
		`,"s":"` + long + `","o":{"` + long + `":1,"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1},"t":` + many("[", 20_000, always(`"aaaaaaa"`), "]") +
		`,"k":` + many("{", 20, func(i int) string { return fmt.Sprintf(`"%s%d":%d`, long[:50_000], i, i) }, "}") +
		`,"m":` + many("{", 2000, func(i int) string { return fmt.Sprintf(`"k%d":%d`, i, i) }, "}") + `}`))}
	var costs []unitCost
	for _, when := range []string{
		"all(state.l, # >= 0)",
		"all(state.l, state.o[state.s] == 1)",
		"all(state.l, state.s in state.o)",
		"all(state.l, len(keys(state.k)) == 20)",
		"all(state.l, len(keys(state.m)) == 2000)",
		"all(state.l, state.m == state.m)",
		"all(state.t, # matches '(a?){400}c' or true)",
		"all(state.l, state.s matches '^k+$')",
		"all(state.l, lower(state.s) != '')",
		"all(state.l, len(state.s) > 1)",
		"all(state.l, !(state.s contains 'b'))",
		"all(state.l, (state.s + 'x') != '')",
		"all(state.l, state.s <= state.s)",
		"all(state.l, !(-1 in state.l))",
		"all(state.l, len([1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]) == 20)",
		"let a = 1; let b = 2; let c = 3; let d = 4; let e = 5; let f = 6; let g = 7; let h = 8; all(state.l, a + a + a + a + a + a > 0)",
		"len(map(state.l, map(state.l, #))) > 0",
	} {
		r, err := compile(ckpt.Rule{Name: "mine", When: when, Severity: ckpt.SeverityWarn}, allPatterns())
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		costs = append(costs, unitOf(when, func() int {
			_, _, left, err := r.holds(t.Context(), names, MaxRuleWork)
			if err != nil {
				t.Fatal(err)
			}
			return MaxRuleWork - left
		}))
	}
	judgeUnits(t, costs)
}

// endsAfter is a context that has ended once it was asked so often.
type endsAfter struct {
	context.Context
	asked, most int
}

func (c *endsAfter) Err() error {
	if c.asked++; c.asked > c.most { // it stays so
		return context.Canceled
	}
	return nil
}

// Nobody goes on trying a schema or a rule for a client that has gone away.
func TestWorkEndsWithItsContext(t *testing.T) {
	s := schemaOf(t, `{"items":{"allOf":[{"$ref":"#"},{"$ref":"#"}]}}`)
	var value any = []any{}
	for range 60 {
		value = []any{value}
	}
	found, left, stopped, err := s.tryFor(&endsAfter{context.Background(), 0, 3}, value, MaxSchemaWork)
	if err != context.Canceled || stopped || found != nil {
		t.Fatalf("%v %v %v", found, stopped, err)
	}
	if paid := MaxSchemaWork - left; paid > 5*lookEvery {
		t.Errorf("it went on for %d units", paid)
	}
	policy := ckpt.DefaultPolicy()
	policy.Rules = []ckpt.Rule{{Name: "mine", When: "all(state, any(state, # == -1) or true)", Severity: ckpt.SeverityWarn}}
	state := []byte(many("[", 2000, func(i int) string { return fmt.Sprint(i) }, "]"))
	_, err = New().State(&endsAfter{context.Background(), 0, 3}, &policy, ckpt.RuleRun{}, state, nil, ckpt.ContentTypeJSON)
	if err != context.Canceled {
		t.Errorf("a rule on a state: %v", err)
	}
	policy.Rules[0].When = "all(step.args, any(step.args, # == -1) or true)"
	_, err = New().Step(&endsAfter{context.Background(), 0, 3}, &policy, ckpt.RuleRun{}, &ckpt.Step{Args: state, Status: ckpt.StepSucceeded})
	if err != context.Canceled {
		t.Errorf("a rule on a step: %v", err)
	}
}

// What a policy holds is bounded before it is read: long names above many parts,
// patterns that are small each and large together, and depth.
func TestReadingASchemaIsBounded(t *testing.T) {
	name := strings.Repeat("n", 100_000)
	for what, text := range map[string]string{
		"long names":  `{"properties":{"` + name + `":` + many(`{"allOf":[`, 20_000, always("{}"), "]}") + `}}`,
		"patterns":    many(`{"allOf":[`, 2000, always(`{"pattern":"(a{9}b{9}){9}"}`), "]}"),
		"one pattern": `{"pattern":"` + strings.Repeat("a{1000}", 30_000) + `"}`,
		"depth":       strings.Repeat(`{"not":`, 9_000) + "{}" + strings.Repeat("}", 9_000),
	} {
		if len(text) > ckpt.MaxSchema {
			t.Fatalf("%s: no policy can have %d bytes", what, len(text))
		}
		_, err := compileSchema(ckpt.JSON(text))
		if err == nil {
			t.Errorf("%s: it was taken", what)
		}
	}
	var rules []ckpt.Rule
	for i := range 60 {
		rules = append(rules, ckpt.Rule{Name: fmt.Sprintf("r%d", i), When: "state.s matches '(a{9}b{9}){99}'", Severity: ckpt.SeverityWarn})
	}
	if _, err := compileRules(rules); err == nil || !strings.Contains(err.Error(), "too large together") {
		t.Errorf("rules: %v", err)
	}
}

// A state with very many small values would take far more memory than its bytes.
func TestAStateOfManyValuesIsNotTried(t *testing.T) {
	p := ckpt.DefaultPolicy()
	p.Schema = ckpt.JSON(`true`)
	state := []byte("[" + strings.Repeat("[],", maxSchemaValues/2) + "[]]")
	if found := broken(New(), &p, state, nil, ckpt.ContentTypeJSON); len(found) != 1 || found[0].Rule != RuleSchemaStopped {
		t.Errorf("%+v", found)
	}
	state = []byte(`["` + strings.Repeat(",", maxSchemaValues) + `"]`)
	if found := broken(New(), &p, state, nil, ckpt.ContentTypeJSON); len(found) != 0 {
		t.Errorf("commas in a text: %+v", found)
	}
}

// The pointer of a finding is of bounded length, whatever the names in a state.
func TestAPointerIsBounded(t *testing.T) {
	s := schemaOf(t, `{"additionalProperties":{"additionalProperties":false}}`)
	long := strings.Repeat("~", 1<<20)
	found, stopped, err := s.try(t.Context(), map[string]any{long: map[string]any{long: 1.0}})
	if err != nil || stopped || len(found) != 1 {
		t.Fatalf("%v %v %v", found, stopped, err)
	}
	if n := len(found[0].pointer); n < maxPointer || n > maxPointer+4 || !strings.HasPrefix(found[0].pointer, "/~0~0") {
		t.Errorf("it has %d bytes: %.20s", n, found[0].pointer)
	}
}
