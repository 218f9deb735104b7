package db

// othersWrote is told that another program has written to the database, which
// only a person or a faulty program does. It may have changed any stored piece,
// so no state stands on another until that one has been read back.
func (s *Store) othersWrote() {
	s.live.doubts.Add(1)
	s.log.Warn("another program has written to the database: what is saved next does not rely on what it may have changed", "path", s.opt.Path)
}
