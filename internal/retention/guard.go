package retention

import (
	"cmp"
	"log/slog"
	"sync"
	"time"
)

// GuardSettings are the settings of a [Guard]. The zero value has the defaults.
type GuardSettings struct {
	Hold      time.Duration        // for how long nothing is removed by age; 0 means DefaultHold, negative means no guard
	Tolerance time.Duration        // how far the clocks may drift apart without a jump; 0 means DefaultTolerance
	Newest    time.Time            // the newest time that the database has seen
	Wall      func() time.Time     // the wall clock; nil means the system's
	Monotonic func() time.Duration // a clock that nobody sets, with any zero point; nil means the system's
	Log       *slog.Logger         // gets a line for every jump; nil means no log
}

// The defaults of GuardSettings.
const (
	DefaultHold      = 10 * time.Minute
	DefaultTolerance = 2 * time.Second
)

// drift limits how far the two clocks can drift apart without a jump: by one part in
// this many of the time that has passed. That is twice what NTP ever corrects by
// slewing.
const drift = 1000

// Guard is the clock that ages are judged by. After a start, and after the wall clock
// has jumped, it is not trusted for a while. That is long enough for a wrong clock to
// be corrected, and for a person to see the line in the log.
//
// A jump means that the wall clock moves differently from the monotonic clock, forwards
// or backwards, at once or in small steps. If the monotonic clock stops while the
// machine sleeps (Linux, macOS), waking up counts as a jump too. That is intended: a
// machine that wakes up often has a wrong clock at first. A wall clock behind the
// newest time in the database counts as a jump at the start. The hold is measured by
// the monotonic clock, so no jump shortens it.
//
// A Guard is safe for concurrent use.
type Guard struct {
	settings GuardSettings

	mu    sync.Mutex
	wall  time.Time     // when the clocks were last read
	mono  time.Duration // as wall, by the monotonic clock
	skew  time.Duration // how far the clocks have drifted apart since, less the drift that is tolerated
	until time.Duration // when the hold ends, by the monotonic clock
	jumps int64
}

// NewGuard makes a Guard. It begins with a hold.
func NewGuard(s GuardSettings) *Guard {
	s.Hold = cmp.Or(s.Hold, DefaultHold)
	s.Tolerance = cmp.Or(s.Tolerance, DefaultTolerance)
	if s.Wall == nil {
		s.Wall = time.Now
	}
	if s.Monotonic == nil {
		start := time.Now()
		s.Monotonic = func() time.Duration { return time.Since(start) }
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	g := &Guard{settings: s}
	g.wall, g.mono = g.read()
	g.until = g.mono + s.Hold
	if behind := s.Newest.Sub(g.wall); !s.Newest.IsZero() && behind > s.Tolerance {
		g.jump(-behind, "the wall clock is behind the newest time in the database")
	}
	return g
}

// Now returns the time, and whether ages may be judged by it.
func (g *Guard) Now() (now time.Time, trusted bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.look()
	return g.wall, g.mono >= g.until
}

// Trusted returns the time if it is trusted, otherwise the zero time: the now of a
// [Func].
func (g *Guard) Trusted() time.Time {
	now, trusted := g.Now()
	if !trusted {
		return time.Time{}
	}
	return now
}

// GuardedUntil returns when ages will be judged again, the zero time if they are judged
// now.
func (g *Guard) GuardedUntil() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.look()
	if g.mono >= g.until {
		return time.Time{}
	}
	return g.wall.Add(g.until - g.mono)
}

// Jumps returns how many jumps the Guard has seen.
func (g *Guard) Jumps() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.look()
	return g.jumps
}

func (g *Guard) read() (time.Time, time.Duration) {
	return g.settings.Wall().Round(0), g.settings.Monotonic()
}

// look reads the clocks, and compares how far each has moved.
func (g *Guard) look() {
	wall, mono := g.read()
	passed := mono - g.mono
	g.skew = towardsZero(g.skew+wall.Sub(g.wall)-passed, passed/drift)
	g.wall, g.mono = wall, mono
	if g.skew.Abs() > g.settings.Tolerance {
		g.jump(g.skew, "the wall clock jumped")
		g.skew = 0
	}
}

// jump starts the hold again.
func (g *Guard) jump(by time.Duration, what string) {
	g.jumps++
	g.until = g.mono + g.settings.Hold
	g.settings.Log.Warn(what+": for a while nothing is removed because of its age", logBy, by, logNow, g.wall, logHold, g.settings.Hold)
}

func towardsZero(d, by time.Duration) time.Duration {
	if d < 0 {
		return min(d+by, 0)
	}
	return max(d-by, 0)
}

// The keys of this package's log lines.
const (
	logBy      = "by"
	logNow     = "now"
	logHold    = "hold"
	logErr     = "err"
	logFailed  = "failed"
	logRemoved = "removed"
	logDropped = "dropped_runs"
	logExpired = "expired_keys"
	logUnmet   = "agents_over_budget"
)
