package server

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"golang.org/x/sync/semaphore"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// share is an owner's share of a bounded resource. Requests wait in order of
// arrival, first behind the owner's own requests and then behind those of all. So
// a flood of one owner queues behind itself, and holds at most the owner's share.
type share struct {
	own, all *semaphore.Weighted // all is nil where only the owner is bounded
	full     string              // what to tell who has waited in vain
}

func (l *share) acquire(ctx context.Context, n int64, wait time.Duration) error {
	if l.tryAcquire(n) {
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

func (l *share) tryAcquire(n int64) bool {
	if !l.own.TryAcquire(n) {
		return false
	}
	if l.all == nil || l.all.TryAcquire(n) {
		return true
	}
	l.own.Release(n)
	return false
}

func (l *share) release(n int64) {
	if l.all != nil {
		l.all.Release(n)
	}
	l.own.Release(n)
}

func (l *share) busy() error {
	return &ckpt.Error{Code: ckpt.CodeBusy, Message: l.full, RetryAfter: time.Second}
}

// hold is what a request holds of a share until it is done.
type hold struct {
	share *share
	n     int64
}

// owner is what the server keeps of one identity. It lives as long as the
// server does: there are no more of them than users of the host.
type owner struct {
	connections atomic.Int64
	requests    share
	bytes       share
	heads       share
	states      share
	heavy       share
	followers   share
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
		requests:  share{semaphore.NewWeighted(int64(o.limits.OwnerRequests)), nil, "you have too many requests open at once: try again"},
		bytes:     share{half(o.limits.InFlightBytes), o.bytes, "too many large requests at once: try again"},
		heads:     share{semaphore.NewWeighted(o.limits.HeadBytes / 4), o.heads, ""},
		states:    share{half(int64(o.limits.StateReads)), o.states, "too many states are being read at once: try again"},
		heavy:     share{half(int64(o.limits.HeavyJobs)), o.heavy, "too many changes and differences are being computed at once: try again"},
		followers: share{semaphore.NewWeighted(int64(o.limits.OwnerFollowers)), nil, ""},
		writes:    newBucket(o.limits.OwnerWritesPerSecond),
		refusals:  newBucket(recordedRefusals),
	}
}

// recordedRefusals a second go into the audit log for one owner.
const recordedRefusals = 5

// bucket is a token bucket that holds one second's tokens.
type bucket struct{ limiter *rate.Limiter }

// newBucket gives so many tokens a second. 0 is no limit.
func newBucket(perSecond int) bucket {
	if perSecond <= 0 {
		return bucket{rate.NewLimiter(rate.Inf, 0)}
	}
	return bucket{rate.NewLimiter(rate.Limit(perSecond), perSecond)}
}

// take answers 0 and takes a token, or answers how long there will be none.
func (b bucket) take() time.Duration {
	now := time.Now() // the monotonic clock: jumps of the day's time give nobody tokens
	next := b.limiter.ReserveN(now, 1)
	wait := next.DelayFrom(now)
	if wait > 0 {
		next.CancelAt(now)
	}
	return wait
}
