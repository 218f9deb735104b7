package client

import (
	"context"
	"sync"
	"time"
)

// others sends, in the background, what other runs of the user have left in the spool. Their processes may never
// start again.
type others struct {
	mu     sync.Mutex
	cancel context.CancelFunc // nil while nothing is sent
	done   chan struct{}
}

const (
	othersSlice = 50                    // writes for which the lock of the spool is held
	othersPause = 50 * time.Millisecond // in which the agent's own replays get the lock
)

// replayOthers begins to send what waits in the spool for this daemon, of any agent of the user. It gives up when the
// daemon takes nothing more. The next start of a run tries again.
func (c *Client) replayOthers() {
	o := &c.others
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.cancel != nil {
		return
	}
	if _, names, err := c.spool.waiting(); err != nil || len(names) == 0 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	o.cancel, o.done = cancel, make(chan struct{})
	go func(done chan struct{}) {
		defer close(done)
		sent := c.sendOthers(ctx)
		if sent > 0 {
			c.log().Warn("writes that waited in the spool were sent", "writes", sent)
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.done == done {
			o.cancel = nil
		}
		cancel()
	}(o.done)
}

func (c *Client) sendOthers(ctx context.Context) (sent int) {
	for ctx.Err() == nil {
		room := othersSlice
		r, err := c.spool.replayWhere(ctx, func(glance) bool { room--; return room >= 0 })
		sent += r.Sent
		if err != nil || r.Sent+r.Rejected == 0 || room >= 0 {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(othersPause):
		}
	}
	return sent
}

// stop ends the replay and waits for it. What was not sent stays in the spool.
func (o *others) stop() {
	o.mu.Lock()
	cancel, done := o.cancel, o.done
	o.cancel = nil
	o.mu.Unlock()
	if cancel != nil {
		cancel()
		<-done
	}
}
