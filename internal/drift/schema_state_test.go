package drift

import (
	"fmt"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestSchemaNamesThePlace: every place that breaks a schema is named, without
// any value of the state.
func TestSchemaNamesThePlace(t *testing.T) {
	const form = `{"type":"object","required":["goal","loop"],"additionalProperties":false,"properties":{
		"goal":{"type":"string","minLength":3,"pattern":"^[a-z ]+$"},
		"loop":{"type":"object","properties":{"iteration":{"type":"integer","minimum":0,"maximum":10}},"required":["iteration"]},
		"tasks":{"type":"array","maxItems":3,"uniqueItems":true,"items":{"$ref":"#/$defs/task"}},
		"kind":{"enum":["a","b"]},"mode":{"oneOf":[{"const":1},{"type":"string"}]}},
		"$defs":{"task":{"type":"object","required":["id"],"properties":{"id":{"type":"integer"},"a/b~c":{"type":"null"}}}}}`
	for state, want := range map[string]string{
		`{"goal":"count sheep","loop":{"iteration":3}}`:                                "",
		`{"goal":"count sheep","loop":{"iteration":"secret"}}`:                         "/loop/iteration is a string and must be an integer",
		`{"goal":"count sheep","loop":{"iteration":11}}`:                               "/loop/iteration is more than 10",
		`{"goal":"count sheep","loop":{}}`:                                             "/loop/iteration is missing",
		`{"loop":{"iteration":1.5}}`:                                                   "/loop/iteration is a number and must be an integer; /goal is missing",
		`{"goal":"SECRET","loop":{"iteration":1}}`:                                     `/goal does not match the pattern "^[a-z ]+$"`,
		`{"goal":"ab","loop":{"iteration":1}}`:                                         "/goal has 2 characters, fewer than 3",
		`{"goal":"abc","loop":{"iteration":1},"secret":1}`:                             "/secret is not known to the schema",
		`{"goal":"abc","loop":{"iteration":1},"tasks":[{"id":1},{"id":"secret"}]}`:     "/tasks/1/id is a string and must be an integer",
		`{"goal":"abc","loop":{"iteration":1},"tasks":[{"id":1,"a/b~c":3}]}`:           "/tasks/0/a~1b~0c is an integer and must be null",
		`{"goal":"abc","loop":{"iteration":1},"tasks":[{"id":1},{"id":2},{"id":1.0}]}`: "/tasks has the same item at 0 and 2",
		`{"goal":"abc","loop":{"iteration":1},"kind":"secret","mode":2}`:               "/kind is none of the 2 values that are allowed; /mode matches 0 of the 2 forms of oneOf, not exactly one",
		`["secret"]`: "the state is an array and must be an object",
	} {
		p := ckpt.DefaultPolicy()
		p.Schema = ckpt.JSON(form)
		found := broken(New(), &p, []byte(state), nil, ckpt.ContentTypeJSON)
		switch {
		case want == "" && len(found) != 0, want != "" && len(found) != 1:
			t.Errorf("%s: %+v", state, found)
		case want != "" && (!strings.HasSuffix(found[0].Message, ": "+want+".") || found[0].Severity != ckpt.SeverityCritical || found[0].Rule != RuleSchema):
			t.Errorf("%s: %+v", state, found[0])
		case want != "" && strings.Contains(strings.ToLower(found[0].Message+found[0].Advice), `"secret"`):
			t.Errorf("%s: a value is in the message: %s", state, found[0].Message)
		case want != "" && !strings.HasPrefix(want, placeOf(found[0].Evidence.Pointer)):
			t.Errorf("%s: the pointer is %q", state, found[0].Evidence.Pointer)
		}
	}
}

func TestStatesThatAreNoJSONBreakASchema(t *testing.T) {
	p := ckpt.DefaultPolicy()
	p.Schema = ckpt.JSON("true")
	if found := broken(New(), &p, []byte("x"), nil, "text/plain"); len(found) != 1 || found[0].Rule != RuleSchema {
		t.Errorf("%+v", found)
	}
}

func TestTheShippedSchema(t *testing.T) {
	p := ckpt.DefaultPolicy()
	p.Schema = ckpt.JSON(`"workflow-snapshot"`)
	w := New()
	if err := w.Check(&p); err != nil {
		t.Fatal(err)
	}
	found := broken(w, &p, []byte(`{}`), nil, ckpt.ContentTypeJSON)
	if len(found) != 1 || !strings.Contains(found[0].Message, "is missing") {
		t.Errorf("%+v", found)
	}
}

func TestBadSchemasAreRefused(t *testing.T) {
	deep := strings.Repeat(`{"not":`, 300) + "{}" + strings.Repeat("}", 300)
	for text, want := range map[string]string{
		`"other"`:                               `the program has no schema with the name "other"`,
		`{"type":"strin"}`:                      "the schema itself: type is \"strin\"",
		`{"type":7}`:                            "not a JSON Schema",
		`{"$ref":"https://example.com/s.json"}`: "example.com",
		`{"$ref":"#/$defs/none"}`:               "",
		`{"$ref":"#none"}`:                      "",
		`{"properties":{"a":{"$dynamicRef":"#x"}},"$dynamicAnchor":"x"}`: "/properties/a: $dynamicRef is not supported",
		`{"properties":{"a":{"$id":"https://e.example/x"}}}`:             "/properties/a: an $id inside the schema is not supported",
		`{"pattern":"("}`: "",
		`{"properties":{"a":{"pattern":"(a{90}b{90}){10}x{900}"}}}`: "/properties/a/pattern: the pattern is too large",
		`{"patternProperties":{"(a{90}b{90}){10}x{900}":true}}`:     "/patternProperties: the pattern is too large",
		`{"$schema":"http://json-schema.org/draft-04/schema#"}`:     "draft 2020-12 and draft-07 are known",
		deep: "more than 200 deep",
	} {
		p := ckpt.DefaultPolicy()
		p.Schema = ckpt.JSON(text)
		err := New().Check(&p)
		if err == nil || ckpt.CodeOf(err) != ckpt.CodeInvalid || !strings.Contains(err.Error(), "schema: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v", text, err)
		}
	}
}

// TestHostileSchemasAreStopped: an endless schema is stopped, and the state is
// not refused.
func TestHostileSchemasAreStopped(t *testing.T) {
	wide := `{"$defs":{"d0":{"type":"array"}`
	for i := range 40 {
		wide += fmt.Sprintf(`,"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i+1, i, i)
	}
	wide += `},"$ref":"#/$defs/d40"}`
	list := "[" + strings.Repeat("1,", 200_000) + "1]"
	for name, test := range map[string][2]string{
		"itself":        {`{"$ref":"#"}`, "1"},
		"circle":        {`{"$defs":{"a":{"allOf":[{"$ref":"#/$defs/b"}]},"b":{"anyOf":[{"$ref":"#/$defs/a"}]}},"$ref":"#/$defs/a"}`, "1"},
		"doubling":      {wide, "[]"},
		"by depth":      {`{"items":{"allOf":[{"$ref":"#"},{"$ref":"#"}]}}`, strings.Repeat("[", 60) + strings.Repeat("]", 60)},
		"depth":         {`{"items":{"$ref":"#"}}`, strings.Repeat("[", 9_990) + strings.Repeat("]", 9_990)},
		"pattern":       {`{"pattern":"(a?){200}b"}`, `"` + strings.Repeat("a", 1_000_000) + `"`},
		"names":         {`{"patternProperties":{"(a?){200}b":true}}`, `{"` + strings.Repeat("a", 1_000_000) + `":1}`},
		"many times":    {`{"allOf":[` + strings.Repeat(`{"items":{"type":"integer"}},`, 60) + `true]}`, list},
		"long contains": {`{"allOf":[` + strings.Repeat(`{"contains":{"const":2},"minContains":0},`, 60) + `true]}`, list},
	} {
		t.Run(name, func(t *testing.T) {
			p := ckpt.DefaultPolicy()
			p.Schema = ckpt.JSON(test[0])
			w := New()
			if err := w.Check(&p); err != nil {
				t.Fatal(err)
			}
			found := broken(w, &p, []byte(test[1]), nil, ckpt.ContentTypeJSON)
			if len(found) != 1 || found[0].Rule != RuleSchemaStopped || found[0].Severity != ckpt.SeverityWarn {
				if name == "depth" && len(found) == 0 {
					return // it is deep, but valid
				}
				t.Fatalf("%+v", found)
			}
		})
	}
}

// TestAStateOfManyValuesIsNotTried: a state with very many small values would
// take far more memory than its size.
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
