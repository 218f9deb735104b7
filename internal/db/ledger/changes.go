package ledger

import "sync"

// Changes tells those who wait that there is something new. It is a channel that
// is closed and replaced, so that nobody can be missed or can hold a writer up.
type Changes struct {
	mu sync.Mutex
	ch chan struct{}
}

// Wait is closed at the next change.
func (c *Changes) Wait() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ch == nil {
		c.ch = make(chan struct{})
	}
	return c.ch
}

// Tell tells all who wait.
func (c *Changes) Tell() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ch != nil {
		close(c.ch)
		c.ch = nil
	}
}
