package monitor

import (
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/liveness"
)

// sight is how long the monitor has seen a run's marks stand as they are. The
// marks are only compared with what they were, never with a clock: they were
// written by the wall clock, which may have jumped since in either direction.
type sight struct {
	epoch          int64
	beat, progress time.Time
	quiet, stuck   time.Duration
	at             time.Duration // when it was last looked at, by the monotonic clock
	failures       int           // to interrupt it, in a row
	retry          time.Duration // not before, by the monotonic clock
}

// look takes down what a run's marks are now. Time counts only as far as the
// monitor was there to see a beat: one look adds at most the given time, and at
// most half of a limit, so that nothing times out by a single late look.
func (s *sight) look(run liveness.Run, now, most time.Duration) {
	passed := min(now-s.at, most)
	s.quiet += min(passed, run.HeartbeatTimeout/2)
	s.stuck += min(passed, run.ProgressTimeout/2)
	s.at = now
	taken := s.epoch != run.Epoch // by a new owner
	if taken || !s.beat.Equal(run.LastBeat) {
		s.beat, s.quiet = run.LastBeat, 0
	}
	if taken || !s.progress.Equal(run.LastProgress) {
		s.progress, s.stuck = run.LastProgress, 0
	}
	if taken {
		s.epoch, s.failures, s.retry = run.Epoch, 0, 0
	}
}

// failed notes that the run could not be interrupted. A store that cannot write
// that could not take a heartbeat either, so the time counts anew.
func (s *sight) failed(now, interval time.Duration) {
	s.quiet, s.stuck = 0, 0
	s.failures++
	s.retry = now + min(interval<<min(s.failures, 10), mostRetry)
}

// mostRetry is the longest time between two tries to interrupt a run.
const mostRetry = time.Minute
