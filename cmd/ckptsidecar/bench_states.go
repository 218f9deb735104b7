package main

import (
	"bytes"
	"strconv"
)

// states are JSON states of one size that have nothing in common but their
// form: the most that a save can cost. A few dozen are made and given out in
// turns, each time with another number in it; between two that are alike but
// for the number lie all the others.
type states struct {
	size int64
	pool [][]byte
}

const (
	statesBytes = 16 << 20 // about how much memory a pool takes
	leastState  = 64
	stampAt     = len(`{"step":`)
	stampFirst  = int64(1_000_000_000) // so that every number has as many digits
)

func newStates(seed uint64, size int64) *states {
	m := newMaterial(seed)
	s := &states{size: size}
	for range min(64, max(3, statesBytes/size)) {
		s.pool = append(s.pool, m.state(size))
	}
	return s
}

// state is one state of exactly so many bytes, at least leastState: a
// conversation, and notes as long as it takes.
func (m *material) state(size int64) []byte {
	const notes, end = `],"notes":"`, `"}`
	b := bytes.NewBufferString(`{"step":` + strconv.FormatInt(stampFirst, 10) + `,"messages":[`)
	for first := true; ; first = false {
		message := m.message(400 + m.n(3000))
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

// stateReader gives one client its states.
type stateReader struct {
	*states
	n, at int64
	state []byte
}

func (s *states) reader(client int) *stateReader {
	return &stateReader{states: s, at: int64(client) * 7}
}

// next is good until it is called again.
func (r *stateReader) next() []byte {
	r.n++
	r.at++
	r.state = append(r.state[:0], r.pool[r.at%int64(len(r.pool))]...)
	copy(r.state[stampAt:], strconv.FormatInt(stampFirst+r.n, 10))
	return r.state
}
