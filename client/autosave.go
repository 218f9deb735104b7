package client

import (
	"context"
	"time"
)

// Autosave saves the state that [Run.State] names every so often, where it has
// changed, until ctx ends. Errors are logged; the next round tries again.
func (r *Run) Autosave(ctx context.Context, every time.Duration) (stop func()) {
	ctx, stop = context.WithCancel(ctx)
	r.done.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		last := ""
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			last = r.saveChanged(ctx, last)
		}
	})
	r.mu.Lock()
	end := r.stop
	r.stop = func() { end(); stop() }
	r.mu.Unlock()
	return stop
}

// saveChanged saves the state unless it is still what was saved last, and
// answers what that now is.
func (r *Run) saveChanged(ctx context.Context, last string) string {
	r.mu.Lock()
	get := r.state
	r.mu.Unlock()
	if get == nil {
		return last
	}
	body, content, _, err := encodeState(get(), SaveOptions{})
	if err == nil && string(body) == last {
		return last
	}
	if err == nil {
		_, err = r.Save(ctx, body, SaveOptions{Content: content})
	}
	if err != nil {
		if ctx.Err() == nil {
			r.Agent.client.log().Warn("an autosave failed", "agent", r.Agent.Name, "run", r.Name, "error", err)
		}
		return last
	}
	return string(body)
}
