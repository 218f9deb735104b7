package host

import (
	"context"
	"time"
)

// Limits on how long a batch is held back for requests that will soon wait for it.
const (
	gatherShare   = 4                     // the part of the time that the last batch took
	gatherMost    = 20 * time.Millisecond // however slow the engine is
	gatherSkipped = 64                    // the most batches that are not held back after one was held back in vain
)

// gathering says for how many requests a batch is held back. Clients whose requests a batch
// has confirmed often write again at once. If the next batch left without these requests,
// each of them would wait for the end of a batch that it just missed, and there would be
// twice as many batches.
type gathering struct {
	expect int           // how many waited when the last batch was confirmed
	full   chan struct{} // is closed when that many wait; nil while no batch is held back
	need   int           // how many were missing when the wait began
	skip   int           // how many batches are not held back, after one was held back in vain
	left   int           // how many of these are left
}

// gather holds a batch back until as many requests wait as waited for the last one. took is
// the time that the last batch took. It does not wait if no request waits yet, or if the
// recent waits were in vain.
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

// awaitFull returns a channel that is closed when enough requests wait, nil if there is no
// need to wait.
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

// came notes that one more request waits. The caller holds the lock.
func (w *waiters) came() {
	if g := &w.gathering; g.full != nil && len(w.list) >= g.expect {
		close(g.full)
		g.full = nil
	}
}

// gathered notes whether the wait was worth it: at least half of the missing requests came.
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
