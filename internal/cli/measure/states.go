package measure

import (
	"bytes"
	"strconv"
)

// States are JSON states of one size that have only their form in common: the most that a
// save can cost. There are a few dozen of them. Clients get them in turn, each time with
// another number in it. Between two states that differ only in the number lie all the
// others.
type States struct {
	size int64
	pool [][]byte
}

const (
	statesBytes = 16 << 20 // about how much memory a pool uses
	LeastState  = 64
	stampAt     = len(`{"step":`)
	stampFirst  = int64(1_000_000_000) // so that every number has the same number of digits
)

// NewStates returns states of one size. The same seed gives the same states.
func NewStates(seed uint64, size int64) *States {
	m := NewMaterial(seed)
	s := &States{size: size}
	for range min(64, max(3, statesBytes/size)) {
		s.pool = append(s.pool, m.State(size))
	}
	return s
}

// State returns one state of exactly this many bytes, at least leastState: a
// conversation, and notes that fill the rest.
func (m *Material) State(size int64) []byte {
	const notes, end = `],"notes":"`, `"}`
	b := bytes.NewBufferString(`{"step":` + strconv.FormatInt(stampFirst, 10) + `,"messages":[`)
	for first := true; ; first = false {
		message := m.Message(400 + m.N(3000))
		if int64(b.Len()+len(message)+1+len(notes)+len(end)) > size {
			break
		}
		if !first {
			b.WriteByte(',')
		}
		b.Write(message)
	}
	b.WriteString(notes)
	for most := int(size) - len(end); b.Len() < most; {
		b.WriteString(cut(m.sentence()+" ", most-b.Len()))
	}
	b.WriteString(end)
	return b.Bytes()
}

// StateReader returns the states for one client.
type StateReader struct {
	*States
	n, at int64
	state []byte
}

// Reader returns a reader for one client.
func (s *States) Reader(client int) *StateReader {
	return &StateReader{States: s, at: int64(client) * 7}
}

// Next returns the next state. Its bytes are valid until the next call.
func (r *StateReader) Next() []byte {
	r.n++
	r.at++
	r.state = append(r.state[:0], r.pool[r.at%int64(len(r.pool))]...)
	copy(r.state[stampAt:], strconv.FormatInt(stampFirst+r.n, 10))
	return r.state
}
