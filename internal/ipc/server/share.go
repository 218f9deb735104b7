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

// share is an owner's share of a bounded resource. Requests wait in order of arrival,
// first behind the owner's own requests and then behind those of all owners. Therefore a
// flood of one owner queues behind itself, and holds at most the owner's share.
type share struct {
	own, all *semaphore.Weighted // all is nil if only the owner's use is limited
	full     string              // the message for a request that has waited in vain
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

// hold is a request's part of a share, until the request is done.
type hold struct {
	share *share
	n     int64
}

// owner is what the server keeps for one identity. It lives as long as the server does:
// there are no more owners than users of the host.
type owner struct {
	connections atomic.Int64
	requests    share
	bytes       share
	heads       share
	states      share
	heavy       share
	followers   share
	writes      bucket
	refusals    bucket // recorded refusals; refusing is free, so recording must be limited
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

// recordedRefusals is how many refusals per second are recorded in the audit log for one
// owner.
const recordedRefusals = 5

// bucket is a token bucket that holds one second's tokens.
type bucket struct{ limiter *rate.Limiter }

// newBucket returns a bucket that gets this many tokens per second. 0 means no limit.
func newBucket(perSecond int) bucket {
	if perSecond <= 0 {
		return bucket{rate.NewLimiter(rate.Inf, 0)}
	}
	return bucket{rate.NewLimiter(rate.Limit(perSecond), perSecond)}
}

// take takes a token and returns 0, or returns how long it takes until there is a token.
func (b bucket) take() time.Duration {
	now := time.Now() // the monotonic clock: changes of the wall clock give nobody tokens
	next := b.limiter.ReserveN(now, 1)
	wait := next.DelayFrom(now)
	if wait > 0 {
		next.CancelAt(now)
	}
	return wait
}
