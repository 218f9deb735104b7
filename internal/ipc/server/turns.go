package server

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// lane is a bounded resource of which each owner has a share. Who must wait
// waits in order of arrival, first among his own requests: an owner's flood
// queues behind itself and holds at most his share of what all use.
type lane struct {
	own, all *semaphore.Weighted // all is nil where only the owner is bounded
	full     string              // what to tell who has waited in vain
}

func (l *lane) enter(ctx context.Context, n int64, wait time.Duration) error {
	if l.tryEnter(n) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if err := l.own.Acquire(ctx, n); err != nil {
		return l.busy()
	}
	if l.all == nil {
		return nil
	}
	if err := l.all.Acquire(ctx, n); err != nil {
		l.own.Release(n)
		return l.busy()
	}
	return nil
}

func (l *lane) tryEnter(n int64) bool {
	if !l.own.TryAcquire(n) {
		return false
	}
	if l.all == nil || l.all.TryAcquire(n) {
		return true
	}
	l.own.Release(n)
	return false
}

func (l *lane) leave(n int64) {
	if l.all != nil {
		l.all.Release(n)
	}
	l.own.Release(n)
}

func (l *lane) busy() error {
	return &ckpt.Error{Code: ckpt.CodeBusy, Message: l.full, RetryAfter: time.Second}
}

// hold is a place in a lane that a request gives back when it is done.
type hold struct {
	lane *lane
	n    int64
}

// owner is what the server keeps of one identity. It lives as long as the
// server does: there are no more of them than users of the host.
type owner struct {
	connections atomic.Int64
	requests    lane
	bytes       lane
	heads       lane
	states      lane
	heavy       lane
	followers   lane
	writes      bucket
	refusals    bucket // recorded ones; refusing is free, so recording must be bounded
}

// owners finds the owner of a connection.
type owners struct {
	limits                      Limits
	bytes, heads, states, heavy *semaphore.Weighted

	mu   sync.Mutex
	list map[string]*owner
}

func newOwners(l Limits) *owners {
	return &owners{
		limits: l,
		bytes:  semaphore.NewWeighted(l.InFlightBytes),
		heads:  semaphore.NewWeighted(l.HeadBytes),
		states: semaphore.NewWeighted(int64(l.StateReads)),
		heavy:  semaphore.NewWeighted(int64(l.HeavyJobs)),
		list:   make(map[string]*owner),
	}
}

func (o *owners) of(name string) *owner {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.list[name] == nil {
		o.list[name] = o.make()
	}
	return o.list[name]
}

func (o *owners) make() *owner {
	half := func(n int64) *semaphore.Weighted { return semaphore.NewWeighted(max(1, n/2)) }
	return &owner{
		requests:  lane{semaphore.NewWeighted(int64(o.limits.OwnerRequests)), nil, "you have more requests in work than are taken at once: try again"},
		bytes:     lane{half(o.limits.InFlightBytes), o.bytes, "too many large requests at once: try again"},
		heads:     lane{semaphore.NewWeighted(o.limits.HeadBytes / 4), o.heads, ""},
		states:    lane{half(int64(o.limits.StateReads)), o.states, "too many states are being read at once: try again"},
		heavy:     lane{half(int64(o.limits.HeavyJobs)), o.heavy, "too many changes and differences are being computed at once: try again"},
		followers: lane{semaphore.NewWeighted(int64(o.limits.OwnerFollowers)), nil, ""},
		writes:    bucket{rate: float64(o.limits.OwnerWritesPerSecond)},
		refusals:  bucket{rate: recordedRefusals},
	}
}

// recordedRefusals a second go into the audit log for one owner.
const recordedRefusals = 5

// bucket is a token bucket that holds one second's tokens. A rate of 0 is no
// limit.
type bucket struct {
	rate float64

	mu     sync.Mutex
	tokens float64
	filled time.Time
}

// take answers 0 and takes a token, or answers how long there will be none.
func (b *bucket) take() time.Duration {
	if b.rate <= 0 {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now() // the monotonic clock: jumps of the day's time give nobody tokens
	b.tokens = min(b.rate, b.tokens+now.Sub(b.filled).Seconds()*b.rate)
	b.filled = now
	if b.tokens < 1 {
		return time.Duration((1 - b.tokens) / b.rate * float64(time.Second))
	}
	b.tokens--
	return 0
}
