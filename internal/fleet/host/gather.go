package host

import (
	"context"
	"time"
)

// The bounds of how long a batch is held back for requests that are about to wait for it.
const (
	gatherShare   = 4                     // of the time that the last batch took
	gatherMost    = 20 * time.Millisecond // however slow the engine is
	gatherSkipped = 64                    // batches at most that are not held back after one was for nothing
)

// gathering says for how many requests a batch is held back. Those that a batch has
// answered often write again at once. If the next batch went without them, each request
// would wait for the end of a batch that it just missed, and there would be twice as many.
type gathering struct {
	expect int           // how many waited when the last batch was confirmed
	full   chan struct{} // is closed when so many wait; nil while no batch is held back
	need   int           // how many were missing when it began
	skip   int           // batches that go at once, after one was held back for nothing
	left   int           // how many of these are left
}

// gather holds a batch back until as many requests wait as did for the last one, which
// took so long. It does not where nobody waits yet, or where that has brought nobody lately.
func (w *waiters) gather(ctx context.Context, took time.Duration) {
	full := w.awaitFull()
	if full == nil {
		return
	}
	timer := time.NewTimer(min(took/gatherShare, gatherMost))
	defer timer.Stop()
	select {
	case <-full:
	case <-timer.C:
	case <-ctx.Done():
	}
	w.gathered()
}

// awaitFull answers a channel that is closed when enough wait, nil for no need to wait.
func (w *waiters) awaitFull() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	g := &w.gathering
	g.need = g.expect - len(w.list)
	switch {
	case len(w.list) == 0 || g.need <= 0:
		return nil
	case g.left > 0:
		g.left--
		return nil
	}
	g.full = make(chan struct{})
	return g.full
}

// came notes that one more waits. The caller holds the lock.
func (w *waiters) came() {
	if g := &w.gathering; g.full != nil && len(w.list) >= g.expect {
		close(g.full)
		g.full = nil
	}
}

// gathered notes whether it was worth it: at least half of those who were missing came.
func (w *waiters) gathered() {
	w.mu.Lock()
	defer w.mu.Unlock()
	g := &w.gathering
	g.full = nil
	if missing := g.expect - len(w.list); 2*missing <= g.need {
		g.skip = 0
		return
	}
	g.skip = min(max(1, 2*g.skip), gatherSkipped)
	g.left = g.skip
}
