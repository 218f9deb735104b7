package host

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// crowd is a number of requests that wait for the engine.
type crowd struct {
	t   *testing.T
	w   *waiters
	all sync.WaitGroup
}

// come makes this many requests wait for a row, after a delay.
func (c *crowd) come(n int, row int64, after time.Duration) {
	for range n {
		c.all.Go(func() {
			<-time.After(after)
			if err := c.w.Wait(c.t.Context(), row, "uid:1 a/main", false); err != nil {
				c.t.Error(err)
			}
		})
	}
}

// gathered returns how long a batch is held back if the previous one took 40 ms, and how many requests wait then.
func (c *crowd) gathered() (time.Duration, int) {
	synctest.Wait()
	began := time.Now()
	c.w.gather(c.t.Context(), 40*time.Millisecond)
	synctest.Wait()
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	return time.Since(began), len(c.w.list)
}

func (c *crowd) want(what string, held time.Duration, n int) {
	c.t.Helper()
	if took, waiting := c.gathered(); took != held || waiting != n {
		c.t.Errorf("%s: the batch was held back for %v and has %d requests, want %v and %d", what, took, waiting, held, n)
	}
}

// TestABatchIsHeldBackForThoseWhoWriteAgain: clients that were answered together write again and share the next
// batch. If they do not write again, batches stop waiting for them.
func TestABatchIsHeldBackForThoseWhoWriteAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{t: t, w: newWaiters()}
		c.want("nobody was there before", 0, 0)
		c.come(4, 1, 0)
		c.want("nobody is missed", 0, 4)
		c.w.confirmed(1, nil, nil, "")

		c.want("nobody waits", 0, 0)
		c.come(1, 2, 0)
		c.come(3, 2, 3*time.Millisecond)
		c.want("all come again", 3*time.Millisecond, 4)
		c.w.confirmed(2, nil, nil, "")

		c.come(1, 3, 0)
		c.want("nobody comes again", 10*time.Millisecond, 1)
		c.come(2, 3, 0)
		c.want("it was for nothing before", 0, 3)
		c.want("one was missed, and does not come", 10*time.Millisecond, 3)
		c.want("twice for nothing", 0, 3)
		c.want("twice for nothing, once more", 0, 3)
		c.come(1, 3, time.Millisecond)
		c.want("it is tried again", time.Millisecond, 4)
		c.w.confirmed(3, nil, nil, "")
		c.all.Wait()
	})
}

// TestABatchIsNotHeldBackForLong: neither behind a slow engine nor while the daemon stops.
func TestABatchIsNotHeldBackForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{t: t, w: newWaiters()}
		c.come(2, 1, 0)
		synctest.Wait()
		c.w.confirmed(1, nil, nil, "")
		c.come(1, 2, 0)
		synctest.Wait()
		began := time.Now()
		c.w.gather(t.Context(), time.Minute)
		if took := time.Since(began); took != gatherMost {
			t.Errorf("behind an engine that took a minute, the next batch is held back for %v, want %v", took, gatherMost)
		}
		c.w.left = 0
		stopped, stop := context.WithCancel(t.Context())
		stop()
		began = time.Now()
		c.w.gather(stopped, time.Minute)
		if took := time.Since(began); took != 0 {
			t.Errorf("a daemon that stops holds a batch back for %v", took)
		}
		c.w.confirmed(2, nil, nil, "")
		c.all.Wait()
	})
}
