package schema

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/meter/metertest"
	"github.com/google/jsonschema-go/jsonschema"
)

func schemaOf(t testing.TB, text string) *Schema {
	t.Helper()
	s, err := Compile(ckpt.JSON(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s
}

// officialCase is a case of the official tests of JSON Schema, which the
// library contains.
type officialCase struct {
	Description string
	Schema      json.RawMessage
	Tests       []struct {
		Description string
		Data        any
		Valid       bool
	}
}

// TestOfficialSchemaTests runs the official tests for the schemas that we
// accept: references to other documents, $dynamicRef and $id inside a schema
// are refused.
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
			s, err := Compile(ckpt.JSON(text))
			if err != nil {
				refused++
				if !strings.Contains(err.Error(), "not supported") && !strings.Contains(err.Error(), "$ref") && !strings.Contains(err.Error(), "loading") && !strings.Contains(err.Error(), "$vocabulary") && !strings.Contains(err.Error(), "absolute") {
					t.Errorf("%s: %s: %v", filepath.Base(file), c.Description, err)
				}
				continue
			}
			for _, test := range c.Tests {
				tried++
				found, _, stopped, _ := s.Try(t.Context(), test.Data, MaxWork)
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

// FuzzSchema: our evaluator and the library agree on what is valid.
func FuzzSchema(f *testing.F) {
	texts := []string{
		`{"type":"object","required":["a"],"properties":{"a":{"type":"integer","minimum":2,"multipleOf":2},"b":{"type":["string","null"],"maxLength":3}},"additionalProperties":{"type":"array","items":{"type":"number"}}}`,
		`{"anyOf":[{"type":"array","prefixItems":[{"type":"string"}],"items":{"type":"integer"},"uniqueItems":true},{"properties":{"x":{"const":null}},"required":["x"],"unevaluatedProperties":false}]}`,
		`{"$defs":{"tree":{"type":"object","properties":{"left":{"$ref":"#/$defs/tree"},"right":{"$ref":"#/$defs/tree"}},"additionalProperties":false}},"$ref":"#/$defs/tree"}`,
		`{"if":{"type":"string"},"then":{"pattern":"^a+$"},"else":{"not":{"type":"number"}},"contains":{"enum":[1,"x",[]]},"propertyNames":{"maxLength":2},"dependentRequired":{"p":["q"]},"maxProperties":2}`,
	}
	type pair struct {
		ours   *Schema
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
			found, _, stopped, _ := p.ours.Try(t.Context(), v, MaxWork)
			if err := p.theirs.Validate(v); (err == nil) != (len(found) == 0) || stopped {
				t.Errorf("schema %d on %s: the library says %v, and this %v", i, state, err, found)
			}
		}
	})
}

// TestAPointerIsBounded: the pointer of a finding has a bounded length,
// whatever the names in a state.
func TestAPointerIsBounded(t *testing.T) {
	s := schemaOf(t, `{"additionalProperties":{"additionalProperties":false}}`)
	long := strings.Repeat("~", 1<<20)
	found, _, stopped, err := s.Try(t.Context(), map[string]any{long: map[string]any{long: 1.0}}, MaxWork)
	if err != nil || stopped || len(found) != 1 {
		t.Fatalf("%v %v %v", found, stopped, err)
	}
	if n := len(found[0].Pointer); n < maxPointer || n > maxPointer+4 || !strings.HasPrefix(found[0].Pointer, "/~0~0") {
		t.Errorf("it has %d bytes: %.20s", n, found[0].Pointer)
	}
}

// TestReadingASchemaIsBounded: the size of a schema is limited before it is
// read: long names above many parts, patterns that are each small but large
// together, and depth.
func TestReadingASchemaIsBounded(t *testing.T) {
	name := strings.Repeat("n", 100_000)
	for what, text := range map[string]string{
		"long names":  `{"properties":{"` + name + `":` + metertest.Many(`{"allOf":[`, 20_000, metertest.Always("{}"), "]}") + `}}`,
		"patterns":    metertest.Many(`{"allOf":[`, 2000, metertest.Always(`{"pattern":"(a{9}b{9}){9}"}`), "]}"),
		"one pattern": `{"pattern":"` + strings.Repeat("a{1000}", 30_000) + `"}`,
		"depth":       strings.Repeat(`{"not":`, 9_000) + "{}" + strings.Repeat("}", 9_000),
	} {
		if len(text) > ckpt.MaxSchema {
			t.Fatalf("%s: no policy can have %d bytes", what, len(text))
		}
		_, err := Compile(ckpt.JSON(text))
		if err == nil {
			t.Errorf("%s: it was taken", what)
		}
	}
}
