// Package lease decides whether a host may act for its runs. Its input is times, its
// output a verdict, and it asks no other program. The engine decides when other hosts may
// claim; this package makes the host stop before that.
//
// This package may import the standard library and golang.org/x/sys only.
package lease

import (
	"sync/atomic"
	"time"
)

// Clock returns the time since a moment that stays the same while the process lives. It
// must go on while the machine sleeps, and never jump: a wall clock is not suitable.
type Clock func() time.Duration

// Verdict is what a host may believe about its lease.
type Verdict string

// The verdicts.
const (
	Held     Verdict = "held"     // no other host may claim by itself
	Doubtful Verdict = "doubtful" // another host may own this host's runs by now
)

// Lease is what a host knows about its lease. It is safe for concurrent use. It is
// doubtful until the first renewal.
type Lease struct {
	clock Clock
	span  time.Duration
	until atomic.Int64 // by the clock, in nanoseconds; 0 if never held, or let go
}

// New makes a lease. span is how long the lease lasts for the engine.
func New(clock Clock, span time.Duration) *Lease { return &Lease{clock: clock, span: span} }

// Sending returns the moment from which a renewal counts that the host sends after this
// call. The engine counts from a later moment, so the lease ends first on this host.
func (l *Lease) Sending() time.Duration { return l.clock() }

// Renewed notes that the engine has confirmed a renewal, which was sent after the moment
// sent. A fifth of the lease is left as a margin, because clocks can run at different
// speeds.
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

// Unknown reports that the lease was not held since the process began, or was let go.
func (l *Lease) Unknown() bool { return l.until.Load() == 0 }

// Left returns how long the host may still act, 0 if it may not.
func (l *Lease) Left() time.Duration {
	until := l.until.Load()
	if until == 0 {
		return 0
	}
	return max(0, time.Duration(until)-l.clock())
}

// Verdict returns whether the host may act now.
func (l *Lease) Verdict() Verdict {
	if l.Left() > 0 {
		return Held
	}
	return Doubtful
}

// Held reports whether the host may act now. It is true for a nil lease, which a host
// without a fleet has.
func (l *Lease) Held() bool { return l == nil || l.Left() > 0 }

// Span returns how long the engine lets the host act after a renewal.
func (l *Lease) Span() time.Duration { return l.span }

// Every returns the pause between two renewals. With it, two of three renewals can fail.
func (l *Lease) Every() time.Duration { return l.span / 3 }
