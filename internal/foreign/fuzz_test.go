package foreign

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/fstest"
)

// sound checks what must hold for every input: each plan passes the checks of
// what it will send, and nothing disappears without a message.
func sound(t *testing.T, r Result) {
	t.Helper()
	if len(r.Plans)+len(r.Problems) == 0 {
		t.Error("neither a plan nor a problem")
	}
	for i := range r.Plans {
		p := &r.Plans[i]
		if err := p.check(); err != nil {
			t.Errorf("a plan would be refused: %v", err)
		}
		keys := map[string]bool{}
		for _, s := range p.Steps {
			if keys[s.Key] {
				t.Errorf("two steps have the key %q", s.Key)
			}
			keys[s.Key] = true
		}
	}
}

func FuzzSnapshots(f *testing.F) {
	for _, file := range filesOf(f, "snapshots/*.json") {
		f.Add(file.Data)
	}
	for _, value := range []string{`[["a",{"status":"success"}],{"id":"a","status":"x"},7,[1]]`, `{"a":[{"status":"failed","error":{}}],"":{"status":"paused"}}`} {
		f.Add([]byte(value))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		sound(t, Snapshots([]File{{"f", data}, {"g", snapshot(nil)}}, options))
		if json.Valid(data) { // a value can also be the value of a member
			v := json.RawMessage(data)
			sound(t, Snapshots([]File{{"f", snapshot(map[string]any{"stepResults": v, "events": v, "executionPath": v})}}, options))
		}
	})
}

func FuzzStatements(f *testing.F) {
	for _, file := range filesOf(f, "statements/*.json") {
		f.Add(file.Data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		sound(t, Statements([]File{{"f", data}}, options))
		head, tail := string(data[:len(data)/2]), string(data[len(data)/2:])
		source, offset, why := codeOf(head+tail, head)
		if why == "" && (offset > len(source) || !strings.HasPrefix(source[:offset], head)) {
			t.Errorf("%d of %q for %q", offset, source, head)
		}
	})
}

func FuzzLoops(f *testing.F) {
	for _, file := range filesOf(f, "loops/.running/*.state.json") {
		f.Add("x", file.Data, []byte("{\"event\":\"a\"}\n{\n"))
	}
	f.Fuzz(func(t *testing.T, name string, state, events []byte) {
		dir := fstest.MapFS{".history/a/state.json": {Data: state}, ".history/a/events.jsonl": {Data: events}}
		loops, _ := FindLoops(dir)
		for _, l := range loops {
			l.folder = name
			sound(t, ReadLoop(dir, l, options))
		}
	})
}
