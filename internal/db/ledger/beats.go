package ledger

import (
	"maps"
	"sync"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Beat is a heartbeat that is not on disk yet.
type Beat struct {
	Epoch int64
	At    ckpt.Time
	Disk  ckpt.Time // the sign of life of the run on disk when the heartbeat came
}

// beats are the newest heartbeats of runs, by the numbers of the runs. A heartbeat need not survive a crash: the monitor gives each run its
// whole time at a start.
type beats struct {
	mu     sync.Mutex
	runs   map[int64]*Beat
	oldest time.Time // when the first of them came
}

// Note keeps a heartbeat of a run.
func (b *beats) Note(run int64, beat *Beat) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.runs) == 0 {
		b.runs, b.oldest = map[int64]*Beat{}, time.Now()
	}
	b.runs[run] = beat
}

// Of returns the heartbeat of a run that is not on disk, nil if there is none. disk is the sign of life on disk: if that has changed since
// the heartbeat came, it is newer.
func (b *beats) Of(run, epoch int64, disk ckpt.Time) *Beat {
	b.mu.Lock()
	defer b.mu.Unlock()
	if beat := b.runs[run]; beat != nil && beat.Epoch == epoch && beat.Disk.Equal(disk.Time) {
		return beat
	}
	return nil
}

// Due returns all heartbeats if the oldest has waited for this long, else nil.
func (b *beats) Due(wait time.Duration) map[int64]*Beat {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.runs) == 0 || time.Since(b.oldest) < wait {
		return nil
	}
	return maps.Clone(b.runs)
}

// Done forgets heartbeats that are on disk. Those that came meanwhile stay.
func (b *beats) Done(due map[int64]*Beat) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for run, beat := range due {
		if b.runs[run] == beat {
			delete(b.runs, run)
		}
	}
	b.oldest = time.Now()
}

// WithBeat sets the sign of life of a run to that of a heartbeat that is not on disk.
func (s *Core) WithBeat(r *RunRow) {
	if beat := s.Beats.Of(r.ID, r.Epoch, r.HeartbeatAt); beat != nil {
		r.HeartbeatAt = beat.At
	}
}
