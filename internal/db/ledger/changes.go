package ledger

import "sync"

// Changes tells waiting callers that there is something new. It is a channel that is closed and
// replaced, so that no caller misses a change and no caller can delay a writer.
type Changes struct {
	mu sync.Mutex
	ch chan struct{}
}

// Wait returns a channel that is closed at the next change.
func (c *Changes) Wait() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ch == nil {
		c.ch = make(chan struct{})
	}
	return c.ch
}

// Tell wakes all callers that wait.
func (c *Changes) Tell() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ch != nil {
		close(c.ch)
		c.ch = nil
	}
}
