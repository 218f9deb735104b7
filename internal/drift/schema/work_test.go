package schema

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/drift/meter/metertest"
)

// hostileSchema is a schema and a state that make one loop of the evaluator
// work as hard as possible.
type hostileSchema struct{ name, schema, state string }

// hostileSchemas has a case for each loop. The first case is known to be
// charged.
func hostileSchemas() []hostileSchema {
	const wide = 2000
	long := strings.Repeat("k", 50_000)
	numbers := metertest.Many("[", 4*wide, func(i int) string { return fmt.Sprint(i) }, "]")
	object := metertest.Many("{", wide, func(i int) string { return fmt.Sprintf(`"key%d":%d`, i, i) }, "}")
	longKeys := metertest.Many("{", 20, func(i int) string { return fmt.Sprintf(`"%s%d":%d`, long, i, i) }, "}")
	shortTexts := metertest.Many("[", 4*wide, metertest.Always(`"aaaaaaa"`), "]")
	all := func(part string) string { return metertest.Many(`{"allOf":[`, 300, metertest.Always(part), "]}") }
	nested := func(depth int, part string) string {
		return strings.Repeat(`{"allOf":[`, depth) + part + strings.Repeat(`]}`, depth)
	}
	return []hostileSchema{
		{"all of", all(`{"items":{"type":"integer"}}`), numbers},
		{"enum", metertest.Many(`{"items":{"enum":[`, 500, func(i int) string { return fmt.Sprint(-i) }, "]}}"), numbers},
		{"types", all(`{"items":{"type":["integer","integer","integer","integer","number","null","string","string"]}}`), numbers},
		{"types that do not fit", all(`{"not":{"items":{"type":["array","null","string","array","null","string"]}}}`), numbers},
		{"merged names", metertest.Many(`{"unevaluatedProperties":true,"anyOf":[`, 100, metertest.Always(nested(10, `{"properties":{},"patternProperties":{"^k":true}}`)), "]}"), object},
		{"merged items", metertest.Many(`{"unevaluatedItems":true,"anyOf":[`, 100, metertest.Always(nested(10, `{"prefixItems":[true],"contains":true}`)), "]}"), numbers},
		{"unevaluated names", all(`{"patternProperties":{"^k":true},"unevaluatedProperties":false}`), object},
		{"unevaluated items", all(`{"contains":true,"unevaluatedItems":false}`), numbers},
		{"items without a part", all(`{"prefixItems":[true]}`), numbers},
		{"unique", all(`{"uniqueItems":true}`), numbers},
		{"contains", all(`{"contains":{"const":-1},"minContains":0}`), numbers},
		{"sorted names", all(`{"propertyNames":true}`), object},
		{"long names", all(`{"propertyNames":true}`), longKeys},
		{"long pointers", `{"$ref":"#/$defs/a","$defs":{"a":{"additionalProperties":{"$ref":"#/$defs/a"},"items":{"type":"integer"}}}}`,
			strings.Repeat(`{"`+long+`":`, 10) + numbers + strings.Repeat(`}`, 10)},
		{"required", metertest.Many(`{"items":{"required":[`, 1000, func(i int) string { return fmt.Sprintf(`"a%d"`, i) }, "]}}"), metertest.Many("[", wide, metertest.Always(`{"b":1}`), "]")},
		{"long required", `{"items":{"required":["` + long + `"]}}`, metertest.Many("[", wide, metertest.Always(`{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1}`), "]")},
		{"dependent names", metertest.Many(`{"items":{"dependentRequired":{`, 1000, func(i int) string { return fmt.Sprintf(`"a%d":["b"]`, i) }, "}}}"), metertest.Many("[", wide, metertest.Always(`{}`), "]")},
		{"dependent schemas", metertest.Many(`{"items":{"dependentSchemas":{`, 1000, func(i int) string { return fmt.Sprintf(`"a%d":true`, i) }, "}}}"), metertest.Many("[", wide, metertest.Always(`{}`), "]")},
		{"multiples", all(`{"items":{"multipleOf":3,"minimum":1,"maximum":5,"exclusiveMinimum":2,"exclusiveMaximum":4}}`), numbers},
		{"decimal multiples", all(`{"items":{"multipleOf":0.12345678901234}}`), metertest.Many("[", 4*wide, func(i int) string { return fmt.Sprintf("%d.25e200", i) }, "]")},
		{"lengths", all(`{"items":{"minLength":3,"maxLength":4}}`), shortTexts},
		{"pattern on short texts", `{"items":{"pattern":"(a?){400}c"}}`, shortTexts},
		{"pattern on texts", `{"items":{"pattern":"(a?){200}c"}}`, metertest.Many("[", 100, metertest.Always(`"`+strings.Repeat("a", 500)+`"`), "]")},
		{"pattern on long texts", `{"items":{"pattern":"(a?){100}c"}}`, metertest.Many("[", 50, metertest.Always(`"`+strings.Repeat("a", 20_000)+`"`), "]")},
		{"pattern of one step", `{"items":{"pattern":"^(ab?){300}$"}}`, metertest.Many("[", 200, metertest.Always(`"`+strings.Repeat("a", 300)+`"`), "]")},
		{"small pattern", all(`{"items":{"pattern":"^a+$"}}`), shortTexts},
		{"patterns of names", metertest.Many(`{"patternProperties":{`, 300, func(i int) string { return fmt.Sprintf(`"(k|e|y|[0-9]){1,9}x%d":true`, i) }, "}}"), object},
		{"doubling", `{"items":{"allOf":[{"$ref":"#"},{"$ref":"#"}]}}`, strings.Repeat("[", 60) + strings.Repeat("]", 60)},
		{"equal objects", all(`{"items":{"const":` + object + `}}`), metertest.Many("[", 20, metertest.Always(object), "]")},
	}
}

// TestSchemaWorkIsPaidFor: every loop of the schema evaluator is charged for
// its work.
func TestSchemaWorkIsPaidFor(t *testing.T) {
	const work = 200_000
	var costs []metertest.UnitCost
	for _, c := range hostileSchemas() {
		s := schemaOf(t, c.schema)
		var value any
		if err := json.Unmarshal([]byte(c.state), &value); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		costs = append(costs, metertest.UnitOf(c.name, func() int {
			_, left, _, err := s.Try(t.Context(), value, work)
			if err != nil {
				t.Fatal(err)
			}
			return work - left
		}))
	}
	metertest.JudgeUnits(t, costs)
}

// TestWorkEndsWithItsContext: the evaluation of a schema ends when the client
// has gone away.
func TestWorkEndsWithItsContext(t *testing.T) {
	s := schemaOf(t, `{"items":{"allOf":[{"$ref":"#"},{"$ref":"#"}]}}`)
	var value any = []any{}
	for range 60 {
		value = []any{value}
	}
	found, left, stopped, err := s.Try(metertest.EndAfter(3), value, MaxWork)
	if err != context.Canceled || stopped || found != nil {
		t.Fatalf("%v %v %v", found, stopped, err)
	}
	if paid := MaxWork - left; paid > 50_000 {
		t.Errorf("it went on for %d units", paid)
	}
}
