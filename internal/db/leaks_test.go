package db

import (
	"fmt"

	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
)

// Left is what a store still holds that its callers should have given back: locks
// of runs, states that are read, reads, and what waits for the writer.
func (s *Store) Left() (left []string) {
	add := func(what string, n int64) {
		if n != 0 {
			left = append(left, fmt.Sprintf("%s: %d", what, n))
		}
	}
	s.Live.Mu.Lock()
	add("saves of large states on their way", int64(len(s.Live.Turns)))
	bytes := s.Live.Held
	for e := s.Live.Order.Front(); e != nil; e = e.Next() {
		state := e.Value.(*ledger.LiveState).State
		bytes -= state.Bytes()
		add("readers of the state "+state.ID, int64(state.Users))
	}
	add("bytes of states counted too many", bytes)
	add("states by run that are not in order", int64(len(s.Live.Runs)-s.Live.Order.Len()))
	add("states by id that are not in order", int64(len(s.Live.Ids)-s.Live.Order.Len()))
	s.Live.Mu.Unlock()

	if s.Engine != nil {
		left = append(left, s.Engine.Left()...)
	}
	return left
}
