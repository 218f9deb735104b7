package resume

import (
	"bytes"
	"encoding/json"

	"github.com/wI2L/jsondiff"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// The largest states of which the difference is made. Where somebody is about
// to decide, or only looks, it is worth the time; where an agent waits to go
// on, only if it costs next to nothing.
const (
	maxMemory      = 1 << 20
	maxQuickMemory = 64 << 10
)

// The bounds of a difference in detail. Each change names its place in full, so
// that a long list under a long name would make gigabytes out of a small state,
// and deep states are compared anew at each of their levels. Beyond the bounds
// the difference is one operation that replaces the whole.
const (
	maxPaths = 1 << 20
	maxDepth = 64
)

// memoryDiff is what a new beginning would lose, which is all: RFC 6902, from the
// chosen checkpoint's state to the empty value of its form. It is nil, which is
// null, where there is no checkpoint, where its state is not JSON, and where it is
// large.
func (m *maker) memoryDiff() ckpt.JSON {
	c := m.choice.loaded
	if c == nil || !ckpt.IsJSON(c.ContentType) {
		return nil
	}
	most := maxQuickMemory
	if m.plan.Verdict == ckpt.VerdictAsk || m.f.DryRun {
		most = maxMemory
	}
	if len(c.State) > most {
		return nil
	}
	return patch(c.State, nothing(c.State))
}

// nothing is the empty value of the form that a state has.
func nothing(state []byte) []byte {
	state = bytes.TrimLeft(state, " \t\r\n")
	switch {
	case bytes.HasPrefix(state, []byte("{")):
		return []byte("{}")
	case bytes.HasPrefix(state, []byte("[")):
		return []byte("[]")
	}
	return []byte("null")
}

// patch compares two states. One that its content type calls JSON and that is
// none has no difference to show.
func patch(from, to []byte) ckpt.JSON {
	if !json.Valid(from) {
		return nil
	}
	if !plain(from) || !plain(to) {
		return object([]any{struct {
			Op    string          `json:"op"`
			Path  string          `json:"path"`
			Value json.RawMessage `json:"value"`
		}{"replace", "", to}})
	}
	p, err := jsondiff.CompareJSON(from, to, jsondiff.UnmarshalFunc(unmarshalExact))
	if err != nil {
		return nil
	}
	if p == nil {
		p = jsondiff.Patch{}
	}
	return object(p)
}

// plain says whether the paths to all values of a JSON text, taken together,
// are of a reasonable length, and none is deep.
func plain(text []byte) bool {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var (
		lengths = []int{0} // of the paths to the objects and arrays that are open
		objects = []bool{false}
		key     = -1 // the length of the key whose value comes next
		total   int
	)
	for {
		t, err := d.Token()
		if err != nil {
			return true // the end
		}
		top := len(lengths) - 1
		if t == json.Delim('}') || t == json.Delim(']') {
			lengths, objects = lengths[:top], objects[:top]
			continue
		}
		if name, ok := t.(string); ok && objects[top] && key < 0 {
			key = len(name)
			continue
		}
		length := lengths[top] + 1 + max(key, 1)
		key = -1
		if total += length; total > maxPaths {
			return false
		}
		if delim, ok := t.(json.Delim); ok {
			if len(lengths) > maxDepth {
				return false
			}
			lengths, objects = append(lengths, length), append(objects, delim == '{')
		}
	}
}

// unmarshalExact keeps numbers in the form that the agent gave them.
func unmarshalExact(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode(v)
}
