package daemon

import (
	"context"
	"slices"

	"github.com/ckptsidecar/ckptsidecar/internal/db/journal"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// learnTaken asks the engine which runs of this host other hosts have claimed, and
// refuses from now on what is written to those here. It names the runs as Ship does.
func (s *shipper) learnTaken(ctx context.Context) (fenced []string, err error) {
	taken, err := s.engine.Taken(ctx, s.host.DB)
	if err != nil {
		return nil, err
	}
	if fenced, err = s.reader.Fence(ctx, taken); err != nil {
		return nil, err
	}
	for i := range taken {
		if !s.isTaken(taken[i].UID, taken[i].Term) {
			s.log.Warn("another host has claimed a run of this host; writes to it are refused here", "run", taken[i].UID, "host", taken[i].Host, "term", taken[i].Term)
		}
	}
	s.mu.Lock()
	changed := !slices.Equal(taken, s.taken)
	s.taken = taken
	s.mu.Unlock()
	if changed {
		s.kept = fleet.Mark{N: -1} // so that the file is written
		s.keepWord(true)
	}
	return fenced, nil
}

func (s *shipper) takenNow() []fleet.Taken {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}

func (s *shipper) isTaken(uid string, term int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.taken {
		if s.taken[i].UID == uid && s.taken[i].Term == term {
			return true
		}
	}
	return false
}

// fenceAsBefore refuses writes to the runs that other hosts had claimed when this
// daemon ran last, and answers them. The engine tells later what has changed since.
func fenceAsBefore(ctx context.Context, wordFile string, j *journal.Journal, database string) ([]fleet.Taken, error) {
	w, err := readWordFile(wordFile)
	if err != nil || w.Database != database || len(w.Taken) == 0 {
		return nil, err
	}
	_, err = j.Fence(ctx, w.Taken)
	return w.Taken, err
}
