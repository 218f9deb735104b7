package resume

import (
	"bytes"
	"encoding/json"

	"github.com/wI2L/jsondiff"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// The largest states that are compared. If a person is about to decide, or only looks,
// the comparison is worth the time. If an agent waits to go on, it is done only if it
// costs almost nothing.
const (
	maxMemory      = 1 << 20
	maxQuickMemory = 64 << 10
)

// Limits on a detailed difference. Each change names its full path, so a long list
// under a long name would make gigabytes from a small state. Deep states are compared
// again at each of their levels. Beyond the limits the difference is one operation that
// replaces the whole state.
const (
	maxPaths = 1 << 20
	maxDepth = 64
)

// memoryDiff returns what a new beginning would lose, which is everything: an RFC 6902
// patch from the chosen checkpoint's state to the empty value of the same form. It is
// nil, which is null in JSON, if there is no checkpoint, if its state is not JSON, or
// if the state is large.
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

// nothing returns the empty value of the form that a state has.
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

// patch compares two states. It returns nil if the first is not JSON, although its
// content type says so.
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

// plain reports whether the paths to all values of a JSON text have a reasonable total
// length, and none of them is deep.
func plain(text []byte) bool {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var (
		lengths = []int{0} // the lengths of the paths to the objects and arrays that are open
		objects = []bool{false}
		key     = -1 // the length of the key whose value comes next
		total   int
	)
	for {
		t, err := d.Token()
		if err != nil {
			return true // the end of the text
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

// unmarshalExact keeps numbers exactly as the agent wrote them.
func unmarshalExact(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode(v)
}
