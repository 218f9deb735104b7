package db

import "fmt"

// Left is what a store still holds that its callers should have given back: locks
// of runs, states that are read, reads, and what waits for the writer.
func (s *Store) Left() (left []string) {
	add := func(what string, n int64) {
		if n != 0 {
			left = append(left, fmt.Sprintf("%s: %d", what, n))
		}
	}
	s.live.mu.Lock()
	add("saves of large states on their way", int64(len(s.live.turns)))
	bytes := s.live.held
	for e := s.live.order.Front(); e != nil; e = e.Next() {
		state := e.Value.(*liveState).state
		bytes -= state.bytes()
		add("readers of the state "+state.id, int64(state.users))
	}
	add("bytes of states counted too many", bytes)
	add("states by run that are not in order", int64(len(s.live.runs)-s.live.order.Len()))
	add("states by id that are not in order", int64(len(s.live.ids)-s.live.order.Len()))
	s.live.mu.Unlock()

	if s.engine != nil {
		left = append(left, s.engine.Left()...)
	}
	return left
}
