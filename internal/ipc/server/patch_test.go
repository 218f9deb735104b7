package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// TestMergePatch uses the examples of RFC 7396, appendix A, and some more.
func TestMergePatch(t *testing.T) {
	for _, c := range [][3]string{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`["a","b"]`, `["c","d"]`, `["c","d"]`},
		{`{"a":"b"}`, `["c"]`, `["c"]`},
		{`{"a":"foo"}`, `null`, `null`},
		{`{"a":"foo"}`, `"bar"`, `"bar"`},
		{`{"e":null}`, `{"a":1}`, `{"e":null,"a":1}`},
		{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		{`{"k\u0061":1}`, `{"ka":2}`, `{"k\u0061":2}`},
		{` {"x" : 1.50 , "y":[ 1,  2 ]} `, `{"z":12345678901234567890}`, `{"x":1.50,"y":[ 1,  2 ],"z":12345678901234567890}`},
		{`{"a":[{"x":null}]}`, `{"b":[{"x":null}]}`, `{"a":[{"x":null}],"b":[{"x":null}]}`},
		{`{"a}":"]{","q\"":{"s":"\\"}}`, `{"n":"}"}`, `{"a}":"]{","q\"":{"s":"\\"},"n":"}"}`},
		{`7`, `{"a":1}`, `{"a":1}`},
		{`{}`, `{}`, `{}`},
	} {
		expect.Equal(t, c[0]+" + "+c[1], string(mergePatch([]byte(c[0]), []byte(c[1]))), c[2])
	}
}

// TestMergePatchIsDeterministic: the same patch must give the same bytes, or a
// repeated save would be refused.
func TestMergePatchIsDeterministic(t *testing.T) {
	var b strings.Builder
	for i := range 50 {
		fmt.Fprintf(&b, `,"k%d":%d`, i, i)
	}
	patch := []byte("{" + b.String()[1:] + "}")
	first := string(mergePatch([]byte(`{"a":1}`), patch))
	for range 20 {
		if got := string(mergePatch([]byte(`{"a":1}`), patch)); got != first {
			t.Fatalf("%s\n%s", got, first)
		}
	}
}

func FuzzMergePatch(f *testing.F) {
	f.Add([]byte(`{"a":{"b":[1,{"c":"\\\""}]}}`), []byte(`{"a":{"b":null,"d":{}}}`))
	f.Add([]byte(`[]`), []byte(`{"a\u0000":-0.0e+1}`))
	f.Fuzz(func(t *testing.T, doc, patch []byte) {
		if jsontext.Check(doc) != nil || jsontext.Check(patch) != nil {
			return
		}
		got := mergePatch(doc, patch)
		if err := jsontext.Check(got); err != nil && !strings.Contains(err.Error(), "duplicate") {
			t.Fatalf("%s + %s = %s: %v", doc, patch, got, err)
		}
		sameMerge(t, doc, patch, got)
	})
}

// sameMerge compares with the definition in RFC 7396, section 2.
func sameMerge(t *testing.T, doc, patch, got []byte) {
	t.Helper()
	if strings.Contains(string(doc)+string(patch), `\`) {
		return // encoding/json folds lone surrogates into one
	}
	var d, p, g any
	for v, text := range map[*any][]byte{&d: doc, &p: patch, &g: got} {
		if unmarshalExact(text, v) != nil {
			return
		}
	}
	x, _ := json.Marshal(mergeByDefinition(d, p))
	y, _ := json.Marshal(g)
	if string(x) != string(y) {
		t.Fatalf("%s + %s = %s, want %s", doc, patch, y, x)
	}
}

func mergeByDefinition(target, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	t, ok := target.(map[string]any)
	if !ok {
		t = map[string]any{}
	}
	for k, v := range p {
		if v == nil {
			delete(t, k)
		} else {
			t[k] = mergeByDefinition(t[k], v)
		}
	}
	return t
}

func TestJSONPatch(t *testing.T) {
	for _, c := range [][3]string{
		{`{"a":1.50,"b":[1,2]}`, `[{"op":"add","path":"/b/1","value":9}]`, `{"a":1.50,"b":[1,9,2]}`},
		{`{"a":1}`, `[{"op":"replace","path":"/a","value":null}]`, `{"a":null}`},
		{`{"a":{"x":"<&>"}}`, `[{"op":"move","from":"/a/x","path":"/y"}]`, `{"a":{},"y":"<&>"}`},
		{`  [1]`, `[{"op":"add","path":"/-","value":2}]`, `[1,2]`},
		{`{"a":1}`, `[{"op":"test","path":"/a","value":1},{"op":"remove","path":"/a"}]`, `{}`},
		{`{"a":1}`, `[]`, `{"a":1}`},
		{`{"a":1}`, `[{"op":"add","path":"/b","value":1,"comment":"ignored, says RFC 6902"}]`, `{"a":1,"b":1}`},
	} {
		got, err := jsonPatch([]byte(c[0]), []byte(c[1]), 1<<20)
		expect.OK(t, err)
		expect.Equal(t, c[0]+" + "+c[1], string(got), c[2])
	}
}

func TestJSONPatchRefusals(t *testing.T) {
	doc := `{"a":"canary","list":[1,2,3],"big":"` + strings.Repeat("x", 1000) + `"}`
	bomb := "[" + strings.Repeat(`{"op":"copy","from":"/big","path":"/big2"},`, 2000) + `{"op":"remove","path":"/big2"}]`
	many := "[" + strings.Repeat(`{"op":"add","path":"/list/0","value":0},`, 1<<17) + `{"op":"remove","path":"/a"}]`
	for patch, code := range map[string]ckpt.Code{
		`{}`: ckpt.CodeInvalid, `7`: ckpt.CodeInvalid, `null`: ckpt.CodeInvalid, `[7]`: ckpt.CodeInvalid, `[{}]`: ckpt.CodeInvalid, `[null]`: ckpt.CodeInvalid,
		`[{"op":"explode","path":"/a"}]`:                          ckpt.CodeInvalid,
		`[{"op":"add","path":"/b"}]`:                              ckpt.CodeInvalid,
		`[{"op":"test","path":"/a"}]`:                             ckpt.CodeInvalid,
		`[{"op":"test","path":"/a","value":"x"}]`:                 ckpt.CodeConflict,
		`[{"op":"remove","path":"/nope"}]`:                        ckpt.CodeConflict,
		`[{"op":"replace","path":"/list/-1","value":1}]`:          "refused",
		`[{"op":"add","path":"/list/9","value":1}]`:               ckpt.CodeConflict,
		`[{"op":"add","path":"/x/y/z","value":1}]`:                ckpt.CodeConflict,
		`[{"op":"move","from":"/list","path":"/list/0"}]`:         "refused",
		`[{"op":"add","path":"nonsense","value":1}]`:              "refused",
		`[{"op":"copy","from":"/list/999999999999","path":"/b"}]`: "refused",
		`[{"op":7,"path":["x"],"value":{}}]`:                      ckpt.CodeInvalid,
		bomb:                                                      ckpt.CodeTooLarge, many: ckpt.CodeTooLarge,
	} {
		_, err := jsonPatch([]byte(doc), []byte(patch), 1<<20)
		got := ckpt.CodeOf(err)
		if code == "refused" && (got == ckpt.CodeInvalid || got == ckpt.CodeConflict) {
			got = code
		}
		if got != code {
			t.Errorf("%.80s: %v, want %q", patch, err, code)
		}
		if err != nil && strings.Contains(err.Error(), "canary") {
			t.Errorf("a value is in the error: %v", err)
		}
	}
}

func TestDiffBringsOneStateToTheOther(t *testing.T) {
	for _, c := range [][2]string{
		{`{"a":1,"b":[1,2,3],"c":{"d":"x"}}`, `{"a":1.0,"b":[0,1,2,3],"e":null}`},
		{`[1,2,3]`, `[3,1]`}, {`{}`, `{}`}, {`1`, `{"a":1}`}, {`{"a/b":1,"~":2}`, `{"a/b":2,"~":3}`},
		{`{"n":12345678901234567890}`, `{"n":12345678901234567891}`},
		{`{"m":[` + strings.Repeat(`1,`, 3000) + `1]}`, `{"m":[0,` + strings.Repeat(`1,`, 3000) + `2]}`},
	} {
		d, err := diff([]byte(c[0]), []byte(c[1]))
		expect.OK(t, err)
		if c[0][0] == '1' {
			continue // json-patch cannot start from a scalar
		}
		p, err := jsonpatch.DecodePatch(d.Patch)
		expect.OK(t, err)
		got, err := p.Apply([]byte(c[0]))
		expect.OK(t, err)
		sameJSON(t, string(got), c[1])
	}
}

func TestDiffSummary(t *testing.T) {
	long := strings.Repeat("é", 500)
	d, err := diff([]byte(`{"same": [1, 2], "gone":true, "a/b":{"x":1}, "long":"`+long+`"}`), []byte(`{"same":[1,2],"a/b":{"x":2},"long":"`+long+`!","new":"v"}`))
	expect.OK(t, err)
	s := d.Summary
	expect.Equal(t, "added", len(s.Added), 1)
	expect.Equal(t, "removed", len(s.Removed), 1)
	expect.Equal(t, "changed", len(s.Changed), 2)
	expect.Equal(t, "added path", s.Added[0].Path, "/new")
	expect.Equal(t, "added value", string(s.Added[0].To), `"v"`)
	expect.Equal(t, "removed path", s.Removed[0].Path, "/gone")
	expect.Equal(t, "removed value", string(s.Removed[0].From), `true`)
	expect.Equal(t, "changed path", s.Changed[0].Path, "/a~1b")
	expect.Equal(t, "changed value", string(s.Changed[0].From)+string(s.Changed[0].To), `{"x":1}{"x":2}`)
	expect.Equal(t, "cut", s.Changed[1].Cut, true)
	expect.Equal(t, "size", s.Changed[1].ToSize, int64(len(long)+3))
	expect.OK(t, jsontext.Check(s.Changed[1].To))
	if len(s.Changed[1].To) > maxShownValue+10 {
		t.Errorf("shown: %d bytes", len(s.Changed[1].To))
	}
}

func TestDiffOfTooManyValuesIsRefused(t *testing.T) {
	big := []byte("[" + strings.Repeat("1,", maxPlaces) + "1]")
	_, err := diff(big, big)
	expect.Code(t, err, ckpt.CodeTooLarge)
}

// TestPatchesThatGoTooDeep: levels are read one by one, so depth and size
// together are bounded.
func TestPatchesThatGoTooDeep(t *testing.T) {
	w := newWorld(t)
	const levels = 500
	deep := strings.Repeat(`{"a":`, levels) + `"` + strings.Repeat("x", 8<<20) + `"` + strings.Repeat("}", levels)
	base := w.save("a", deep)
	for form, patch := range map[string]string{
		ipc.TypeMergePatch: strings.Repeat(`{"a":`, levels) + `1` + strings.Repeat("}", levels),
		ipc.TypeJSONPatch:  `[{"op":"add","path":"` + strings.Repeat("/a", levels) + `","value":1}]`,
	} {
		r := w.send("POST", saves+"?kind=routine&base="+base.ID, patch, "Content-Type: "+form)
		expect.Equal(t, form, r.problem(t).Code, ckpt.CodeTooLarge)
	}
	expect.Equal(t, "depth", jsontext.Nesting([]byte(`{"a]":[{"b":"{[\\"{"}],"c":[[[]]]}`)), 4)
}
