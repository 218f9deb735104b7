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

// memoryDiff is what a new beginning would change: RFC 6902, from the chosen
// checkpoint's state to the run's initial one. It is nil, which is null, where
// there is no checkpoint, where its state is not JSON, and where it is large.
func (m *maker) memoryDiff() ckpt.JSON {
	c := m.choice.loaded
	if c == nil || !ckpt.IsJSON(c.ContentType) {
		return nil
	}
	most := maxQuickMemory
	if m.plan.Verdict == ckpt.VerdictAsk || m.f.DryRun {
		most = maxMemory
	}
	initial := m.initial(c.State)
	if len(c.State) > most || len(initial) > most {
		return nil
	}
	return patch(c.State, initial)
}

// initial is the state of the run's first checkpoint, or the empty value of the
// form that the state has.
func (m *maker) initial(state []byte) []byte {
	if i := m.f.Initial; i != nil && i.State != nil && ckpt.IsJSON(i.ContentType) {
		return i.State
	}
	state = bytes.TrimLeft(state, " \t\r\n")
	switch {
	case bytes.HasPrefix(state, []byte("{")):
		return []byte("{}")
	case bytes.HasPrefix(state, []byte("[")):
		return []byte("[]")
	}
	return []byte("null")
}

// patch compares two states. A state that its content type calls JSON and that
// is none has no difference to show.
func patch(from, to []byte) ckpt.JSON {
	p, err := jsondiff.CompareJSON(from, to, jsondiff.UnmarshalFunc(unmarshalExact))
	if err != nil {
		return nil
	}
	if p == nil {
		return ckpt.JSON("[]")
	}
	text, err := json.Marshal(p)
	if err != nil {
		return nil
	}
	return text
}

// unmarshalExact keeps numbers in the form that the agent gave them.
func unmarshalExact(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode(v)
}
