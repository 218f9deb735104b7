package db

import (
	"slices"
	"time"
)

// writerStats counts how writing goes; the writer's lock guards it.
type writerStats struct {
	commits, operations, retries, failures int64
	lastBatch                              int
	recent                                 [256]time.Duration // of the last commits, as a ring
}

func (s *writerStats) record(batch int, took time.Duration) {
	s.recent[s.commits%int64(len(s.recent))] = took
	s.commits++
	s.operations += int64(batch)
	s.lastBatch = batch
}

// quantile is of the last commits, 0 where there was none.
func (s *writerStats) quantile(q float64) time.Duration {
	n := min(s.commits, int64(len(s.recent)))
	if n == 0 {
		return 0
	}
	sorted := slices.Clone(s.recent[:n])
	slices.Sort(sorted)
	return sorted[min(int(float64(n)*q), int(n)-1)]
}
