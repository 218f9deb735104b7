package sqlite

import (
	"slices"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// writerStats counts the writer's results; the writer's lock guards it.
type writerStats struct {
	commits, operations, retries, failures int64
	lastBatch                              int
	full                                   bool               // the last operation that stores something found no space
	recent                                 [256]time.Duration // durations of the last commits, as a ring
}

func (s *writerStats) record(batch int, took time.Duration) {
	s.recent[s.commits%int64(len(s.recent))] = took
	s.commits++
	s.operations += int64(batch)
	s.lastBatch = batch
}

// failures counts operations that failed for a reason outside the operation: no space, no lock, a fault.
func failures(batch []*Op) (n int64) {
	for _, o := range batch {
		if o.err == nil {
			continue
		}
		switch ckpt.CodeOf(o.err) {
		case ckpt.CodeStorageFull, ckpt.CodeBusy, ckpt.CodeInternal:
			n++
		}
	}
	return n
}

// noteRoom notes whether there is space for operations that store something.
func (s *writerStats) noteRoom(batch []*Op) {
	for _, o := range batch {
		if o.Claim == Adds && o.Owner != Maintenance {
			s.full = s.full && !o.stored || o.err != nil && ckpt.CodeOf(o.err) == ckpt.CodeStorageFull
		}
	}
}

// quantile is a quantile of the last commits' durations, 0 if there were none.
func (s *writerStats) quantile(q float64) time.Duration {
	n := min(s.commits, int64(len(s.recent)))
	if n == 0 {
		return 0
	}
	sorted := slices.Clone(s.recent[:n])
	slices.Sort(sorted)
	return sorted[min(int(float64(n)*q), int(n)-1)]
}
