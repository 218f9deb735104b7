// Package lease says whether a host may act for its runs: times in, a verdict out. It
// asks nobody. The engine decides when others may claim; this package makes the host
// stop before that.
//
// This package may import the standard library and golang.org/x/sys only.
package lease

import (
	"sync/atomic"
	"time"
)

// Clock answers the time since some moment that does not change while the process
// lives. It must go on while the machine sleeps, and never jump: a wall clock will not do.
type Clock func() time.Duration

// Verdict is what a host may believe about its lease.
type Verdict string

// The verdicts.
const (
	Held     Verdict = "held"     // no other host may claim by itself
	Doubtful Verdict = "doubtful" // another host may own this host's runs by now
)

// Lease is what a host knows of its lease. It is safe for concurrent use. It is
// doubtful until the first renewal.
type Lease struct {
	clock Clock
	span  time.Duration
	until atomic.Int64 // by the clock, in nanoseconds; 0 for never held, or let go
}

// New makes a lease of so long a span, as the engine counts it.
func New(clock Clock, span time.Duration) *Lease { return &Lease{clock: clock, span: span} }

// Sending is the moment from which a renewal counts that is sent after this call. The
// engine counts from a later moment, so this host's time ends first.
func (l *Lease) Sending() time.Duration { return l.clock() }

// Renewed notes that the engine has confirmed a renewal that was sent after a moment. A
// fifth of the lease is left to clocks that run at different speeds.
func (l *Lease) Renewed(sent time.Duration) {
	until := int64(sent + l.span - l.span/5)
	for {
		was := l.until.Load()
		if was >= until || l.until.CompareAndSwap(was, until) {
			return
		}
	}
}

// LetGo ends the lease at once.
func (l *Lease) LetGo() { l.until.Store(0) }

// Left is how long the host may still act, 0 for not at all.
func (l *Lease) Left() time.Duration {
	until := l.until.Load()
	if until == 0 {
		return 0
	}
	return max(0, time.Duration(until)-l.clock())
}

// Verdict says whether the host may act now.
func (l *Lease) Verdict() Verdict {
	if l.Left() > 0 {
		return Held
	}
	return Doubtful
}

// Held says the same. A nil lease binds nobody: it is that of a host without a fleet.
func (l *Lease) Held() bool { return l == nil || l.Left() > 0 }

// Span is how long the engine lets the host act after a renewal.
func (l *Lease) Span() time.Duration { return l.span }

// Every is the pause between two renewals: two of three may fail.
func (l *Lease) Every() time.Duration { return l.span / 3 }
