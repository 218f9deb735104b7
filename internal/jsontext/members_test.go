package jsontext_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

func membersOf(text string) (map[string]string, bool) {
	got := map[string]string{}
	ok := jsontext.Members([]byte(text), func(name string, value []byte) bool {
		got[name] = string(value)
		return true
	})
	return got, ok
}

func TestElements(t *testing.T) {
	for text, want := range map[string][]string{
		`[]`: nil, ` [ ] `: nil, `[1]`: {"1"}, "[ {\"a\":[2,\"]\"]} ,\n\"x\", [], null ]": {`{"a":[2,"]"]}`, `"x"`, "[]", "null"},
	} {
		var got []string
		if ok := jsontext.Elements([]byte(text), func(value []byte) bool { got = append(got, string(value)); return true }); !ok || !cmp.Equal(want, got) {
			t.Errorf("%s: %t, %q", text, ok, got)
		}
	}
	for _, text := range []string{``, `{}`, `1`, `[`, `[1`, `[1,`, `["x`, `[1 2]`} {
		if jsontext.Elements([]byte(text), func([]byte) bool { return true }) {
			t.Errorf("%s was read to its end", text)
		}
	}
	n := 0
	if !jsontext.Elements([]byte(`[1,2,3]`), func([]byte) bool { n++; return n < 2 }) || n != 2 {
		t.Errorf("it was stopped after %d of 2", n)
	}
}

func TestMembers(t *testing.T) {
	for text, want := range map[string]map[string]string{
		`{}`:      {},
		` { } `:   {},
		`{"a":1}`: {"a": "1"},
		`{"a" : [1, {"b":"}]"}], "\u0062\n" :null ,"c":"x\"y", "d":-1.5e3,"":{}}`: {"a": `[1, {"b":"}]"}]`, "b\n": "null", "c": `"x\"y"`, "d": "-1.5e3", "": "{}"},
	} {
		got, ok := membersOf(text)
		if diff := cmp.Diff(want, got); diff != "" || !ok {
			t.Errorf("%s: %t\n%s", text, ok, diff)
		}
	}
	for _, text := range []string{``, `[]`, `1`, `"a"`, `{"a"`, `{"a":`, `{"a":[`, `{"a":1`, `{"a":1,`, `{"a" 1}`, `{a:1}`, `{"a":"x`} {
		if got, ok := membersOf(text); ok {
			t.Errorf("%s: %v", text, got)
		}
	}
	n := 0
	if !jsontext.Members([]byte(`{"a":1,"b":2,"c":3}`), func(string, []byte) bool { n++; return n < 2 }) || n != 2 {
		t.Errorf("%d members were visited", n)
	}
}

// TestMembersByAMap: a map changes only how much is read, not the result.
func TestMembersByAMap(t *testing.T) {
	large := strings.Repeat(`{"role":"user","content":"some \"text\" ]}"},`, 200)
	text := []byte(`{"n":1,"messages":[` + large + `{}],"inner":{"list":[` + large + `1],"deep":{"x":2,"s":"` + strings.Repeat("y", 3000) + `"}},"last":true}`)
	checked, err := jsontext.CheckAfter(text, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var walk func(at int, m *jsontext.Map, place string, into map[string]string)
	walk = func(at int, m *jsontext.Map, place string, into map[string]string) {
		jsontext.MembersAt(text, at, m, func(name string, begin, end int) bool {
			into[place+"/"+name] = string(text[begin:end])
			walk(begin, m, place+"/"+name, into)
			return true
		})
	}
	plain, mapped := map[string]string{}, map[string]string{}
	walk(0, nil, "", plain)
	walk(0, checked.Map, "", mapped)
	if diff := cmp.Diff(plain, mapped); diff != "" || len(plain) != 8 || plain["/inner/deep/x"] != "2" || plain["/last"] != "true" {
		t.Errorf("%d members\n%s", len(plain), diff)
	}
}

// FuzzMembers: for JSON the result is that of encoding/json, and other texts
// are never read beyond their end.
func FuzzMembers(f *testing.F) {
	for _, text := range []string{`{"a":1,"b":{"c":[true,"x\\"]}}`, `{"a":`, `{`, `[{}]`, `{"\ud800":1}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, ok := membersOf(string(text))
		if jsontext.Check(text) != nil {
			return
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(text, &want); err != nil || want == nil {
			if ok {
				t.Fatalf("%q is no object: %v", text, got)
			}
			return
		}
		plain := map[string]string{}
		for name, value := range want {
			plain[name] = string(value)
		}
		if diff := cmp.Diff(plain, got); diff != "" || !ok {
			t.Fatalf("%q: %t\n%s", text, ok, diff)
		}
	})
}
