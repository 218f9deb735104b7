package drift

import (
	"encoding/json"
	"testing"
)

// TestBracketsThatAreNoJSON: lists as Python prints them, tables of TOML and tests of a shell begin with brackets.
func TestBracketsThatAreNoJSON(t *testing.T) {
	for text, want := range map[string]bool{
		"[{'id': 1, 'name': 'x'}]": false, "[['a', 1], ['b', 2]]": false, "[[source]]\nurl = 'x'\n": false, "[[ -f x ]] && echo y": false,
		"[[wiki link]] and text": false, "[(1, 2)]": false, "[[]": true, "[[1, 2], [3": true, "[ [ \"a\", ": true,
		`[{"id": 1, "name": `: true, `[{}, {`: true, `{"a": 1`: true, `[[{"a":`: true, `[{'a': "b"}`: false, `[[-1, 2]`: true, `[[-x]]`: false,
		`[[true, fal`: true, `[[null`: true, `[[test]]`: false, `[[`: true, `[{`: true,
	} {
		result, _ := json.Marshal(text)
		if got := unparsable(result); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
