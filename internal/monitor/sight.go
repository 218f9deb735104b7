package monitor

import (
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/liveness"
)

// sight is for how long the monitor has seen a run's marks unchanged. It compares the
// marks only with their earlier values, never with a clock: the wall clock wrote them,
// and it may have jumped since in either direction.
type sight struct {
	epoch          int64
	beat, progress time.Time
	quiet, stuck   time.Duration
	at             time.Duration // when the run was last looked at, by the monotonic clock
	failures       int           // failures to interrupt it, in a row
	retry          time.Duration // when to try again at the earliest, by the monotonic clock
}

// look records a run's current marks. Time counts only if the monitor was there to see
// a heartbeat: one look adds at most the given time, and at most half of a limit, so
// that a single late look cannot time out anything.
func (s *sight) look(run liveness.Run, now, most time.Duration) {
	passed := min(now-s.at, most)
	s.quiet += min(passed, run.HeartbeatTimeout/2)
	s.stuck += min(passed, run.ProgressTimeout/2)
	s.at = now
	taken := s.epoch != run.Epoch // by a new owner
	if taken || !s.beat.Equal(run.LastBeat) {
		s.beat, s.quiet = run.LastBeat, 0
	}
	if taken || run.Asks || !s.progress.Equal(run.LastProgress) {
		s.progress, s.stuck = run.LastProgress, 0
	}
	if taken {
		s.epoch, s.failures, s.retry = run.Epoch, 0, 0
	}
}

// failed notes that the run could not be interrupted. A store that could not write that
// could not take a heartbeat either, so the time starts again at zero.
func (s *sight) failed(now, interval time.Duration) {
	s.quiet, s.stuck = 0, 0
	s.failures++
	s.retry = now + min(interval<<min(s.failures, 10), mostRetry)
}

// mostRetry is the longest time between two tries to interrupt a run.
const mostRetry = time.Minute
