package monitor

import (
	"cmp"
	"log/slog"
	"sync"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/liveness"
)

// The defaults of a Monitor.
const (
	DefaultInterval = time.Second
	DefaultSlice    = 500
)

// Monitor interrupts the runs whose owner has died, is silent or makes no progress.
// Store and Processes must be set; the other fields may be zero.
type Monitor struct {
	Store     store
	Processes liveness.Processes
	Log       *slog.Logger         // nil means none
	Interval  time.Duration        // the longest time between rounds, give or take a tenth; 0 means DefaultInterval
	Slice     int                  // how many runs are read at once; 0 means DefaultSlice
	Monotonic func() time.Duration // a clock that nobody sets, with any zero point; nil means the system's

	mu     sync.Mutex
	start  time.Time
	sights map[int64]*sight // by the id of the run
	said   string           // the failure that was last logged
	tight  time.Duration    // the shortest limit of the last round, 0 for none
}

// Result is what a round did.
type Result struct {
	Watched     int // runs that were looked at
	Interrupted int
	TimedOut    int
	PutOff      bool    // the database was busy; the next round does the rest
	Failed      int     // how many runs, or slices of runs, failed; the others were done
	Errors      []error // the first few of their errors
}

// maxErrors is the most errors that a Result holds.
const maxErrors = 10

// sight returns what was seen of a run, and looks at the run again.
func (m *Monitor) sight(run liveness.Run) *sight {
	now := m.now()
	s, known := m.sights[run.ID]
	if !known {
		s = &sight{epoch: run.Epoch, beat: run.LastBeat, progress: run.LastProgress, at: now}
		if m.sights == nil {
			m.sights = map[int64]*sight{}
		}
		m.sights[run.ID] = s
	}
	s.look(run, now, 2*m.interval())
	return s
}

// forget drops what was seen of runs that are no longer watched. A run that a failing
// store left out for that long starts again from nothing.
func (m *Monitor) forget() {
	now, most := m.now(), 10*m.interval()
	for id, s := range m.sights {
		if now-s.at > most {
			delete(m.sights, id)
		}
	}
}

// now returns the monotonic time since the first round.
func (m *Monitor) now() time.Duration {
	if m.Monotonic != nil {
		return m.Monotonic()
	}
	if m.start.IsZero() {
		m.start = time.Now()
	}
	return time.Since(m.start)
}

// log logs what went wrong, but not again while it stays the same.
func (m *Monitor) log(r Result, err error) {
	said, text := m.said, ""
	switch {
	case err != nil:
		text = err.Error()
	case r.Failed > 0:
		text = r.Errors[0].Error()
	}
	if m.said = text; m.Log == nil || text == said || text == "" {
		return
	}
	if err != nil {
		m.Log.Error("the monitor stopped before its round was done", logErr, err)
		return
	}
	m.Log.Warn("the monitor could not check every run", logFailed, r.Failed, logErr, r.Errors[0])
}

// quickest is the shortest time between rounds, however short a limit is.
const quickest = 50 * time.Millisecond

// pace returns the time to the next round: the interval, or less if a run has a limit
// so short that the monitor would notice it much too late.
func (m *Monitor) pace() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tight == 0 {
		return m.interval()
	}
	return min(m.interval(), max(m.tight/8, quickest))
}

func (m *Monitor) interval() time.Duration { return cmp.Or(m.Interval, DefaultInterval) }

// The keys of this package's log lines.
const (
	logErr    = "err"
	logFailed = "failed"
	logOwner  = "owner"
	logAgent  = "agent"
	logRun    = "run"
	logStatus = "status"
	logReason = "reason"
)
