package drift

import (
	"encoding/json"
	"strings"
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

// TestResultsThatAreWholeForTheirTool: a hint after the JSON, and a result that the tool cut at a round length, are no
// damage. A second value that is cut, too many brackets, and words on the same line are.
func TestResultsThatAreWholeForTheirTool(t *testing.T) {
	long := `{"matches": ["` + strings.Repeat("x", 7000)
	for text, want := range map[string]bool{
		"{\"ok\": false}\n[edit-help] The text is not unique.": false, "{\"ok\": true}\nhint: run the tests": false,
		"{\"a\": 1}\n{\"b\": ": true, "{\"a\": 1}}}": true, "{\"a\": 1}\n}": true, "{\"a\": 1} and more": true,
		long[:6000]: false, long[:4096]: false, long[:6001]: true, long[:500]: true,
	} {
		result, _ := json.Marshal(text)
		if got := unparsable(result); got != want {
			t.Errorf("%.60s, %d bytes: %v", text, len(text), got)
		}
	}
}
