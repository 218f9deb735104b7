package drift

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

func schemaOf(t testing.TB, text string) *schema {
	t.Helper()
	s, err := compileSchema(ckpt.JSON(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s
}

// Every place that breaks a schema is named, and no value of the state.
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
		`{"goal":"abc","loop":{"iteration":1},"kind":"secret","mode":2}`:               "/kind is none of the 2 values that are allowed; /mode fits 0 of the 2 forms of oneOf, not one",
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
		`"other"`:                               `no schema that comes with the program is called "other"`,
		`{"type":"strin"}`:                      "the schema itself: type is \"strin\"",
		`{"type":7}`:                            "no JSON Schema",
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

// A schema that goes on without end is stopped, and the state is not refused.
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
					return // deep, but fine
				}
				t.Fatalf("%+v", found)
			}
		})
	}
}

// officialCase is a case of the official tests of JSON Schema, which the library
// brings with it.
type officialCase struct {
	Description string
	Schema      json.RawMessage
	Tests       []struct {
		Description string
		Data        any
		Valid       bool
	}
}

// The official tests, as far as the schemas are taken: references to other
// documents, $dynamicRef and $id inside a schema are refused.
func TestOfficialSchemaTests(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/google/jsonschema-go").Output()
	if err != nil {
		t.Skip("there is no go command here to find the official tests with")
	}
	files, _ := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "jsonschema", "testdata", "draft*", "*.json"))
	if len(files) == 0 {
		t.Skip("the library did not bring the official tests with it")
	}
	tried, refused := 0, 0
	for _, file := range files {
		draft7 := filepath.Base(filepath.Dir(file)) == "draft7"
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var cases []officialCase
		if err := json.Unmarshal(data, &cases); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, c := range cases {
			text := c.Schema
			if draft7 && text[0] == '{' && !strings.Contains(string(text), "$schema") {
				text = json.RawMessage(`{"$schema":"http://json-schema.org/draft-07/schema#"` + strings.TrimSuffix(", "+strings.TrimSpace(string(text[1:])), ", }"))
				if text[len(text)-1] != '}' {
					text = append(text, '}')
				}
			}
			s, err := compileSchema(ckpt.JSON(text))
			if err != nil {
				refused++
				if !strings.Contains(err.Error(), "not supported") && !strings.Contains(err.Error(), "$ref") && !strings.Contains(err.Error(), "loading") && !strings.Contains(err.Error(), "$vocabulary") && !strings.Contains(err.Error(), "absolute") {
					t.Errorf("%s: %s: %v", filepath.Base(file), c.Description, err)
				}
				continue
			}
			for _, test := range c.Tests {
				tried++
				found, stopped, _ := s.try(t.Context(), test.Data)
				if stopped || (len(found) == 0) != test.Valid {
					t.Errorf("%s %s: %s: %s: %v %v", filepath.Base(filepath.Dir(file)), filepath.Base(file), c.Description, test.Description, found, stopped)
				}
			}
		}
	}
	if tried < 1500 {
		t.Errorf("only %d cases were tried, %d schemas refused", tried, refused)
	}
	t.Logf("%d cases tried, %d schemas refused", tried, refused)
}

// What the library finds valid is valid here, and the other way round.
func FuzzSchema(f *testing.F) {
	texts := []string{
		`{"type":"object","required":["a"],"properties":{"a":{"type":"integer","minimum":2,"multipleOf":2},"b":{"type":["string","null"],"maxLength":3}},"additionalProperties":{"type":"array","items":{"type":"number"}}}`,
		`{"anyOf":[{"type":"array","prefixItems":[{"type":"string"}],"items":{"type":"integer"},"uniqueItems":true},{"properties":{"x":{"const":null}},"required":["x"],"unevaluatedProperties":false}]}`,
		`{"$defs":{"tree":{"type":"object","properties":{"left":{"$ref":"#/$defs/tree"},"right":{"$ref":"#/$defs/tree"}},"additionalProperties":false}},"$ref":"#/$defs/tree"}`,
		`{"if":{"type":"string"},"then":{"pattern":"^a+$"},"else":{"not":{"type":"number"}},"contains":{"enum":[1,"x",[]]},"propertyNames":{"maxLength":2},"dependentRequired":{"p":["q"]},"maxProperties":2}`,
	}
	type pair struct {
		ours   *schema
		theirs *jsonschema.Resolved
	}
	var pairs []pair
	for _, text := range texts {
		var theirs jsonschema.Schema
		if err := json.Unmarshal([]byte(text), &theirs); err != nil {
			f.Fatal(err)
		}
		resolved, err := theirs.Resolve(nil)
		if err != nil {
			f.Fatal(err)
		}
		pairs = append(pairs, pair{schemaOf(f, text), resolved})
	}
	for _, state := range []string{`{"a":4,"b":"abc","c":[1,2.5]}`, `["x",1,2]`, `{"x":null}`, `{"left":{"right":{}}}`, `"aaa"`, `[1,"x",[]]`, `{"p":1,"q":2}`, `3`} {
		f.Add(state)
	}
	f.Fuzz(func(t *testing.T, state string) {
		var v any
		if len(state) > 4096 || json.Unmarshal([]byte(state), &v) != nil {
			return
		}
		for i, p := range pairs {
			found, stopped, _ := p.ours.try(t.Context(), v)
			if err := p.theirs.Validate(v); (err == nil) != (len(found) == 0) || stopped {
				t.Errorf("schema %d on %s: the library says %v, and this %v", i, state, err, found)
			}
		}
	})
}
