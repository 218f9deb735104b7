package db

import "fmt"

// Left returns what a store still holds that its callers should have released:
// locks of runs, states being read, reads, and operations that wait for the
// writer.
func (s *Store) Left() (left []string) {
	add := func(what string, n int64) {
		if n != 0 {
			left = append(left, fmt.Sprintf("%s: %d", what, n))
		}
	}
	held := s.States.Held()
	add("saves of large states on their way", int64(held.Saves))
	for id, users := range held.Users {
		add("readers of the state "+id, int64(users))
	}
	add("bytes of states counted too many", held.Excess)
	add("states by run that are not in order", int64(held.ByRun))
	add("states by id that are not in order", int64(held.ByID))

	if s.Engine != nil {
		left = append(left, s.Engine.Left()...)
	}
	return left
}
