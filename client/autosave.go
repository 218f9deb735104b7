package client

import (
	"context"
	"time"
)

// Autosave saves the state that [Run.State] names at an interval, if it changed,
// until ctx ends. It logs errors and tries again in the next round.
func (r *Run) Autosave(ctx context.Context, every time.Duration) (stop func()) {
	last := ""
	return r.work.every(ctx, every, func(ctx context.Context) { last = r.saveChanged(ctx, last) })
}

// saveChanged saves the state if it differs from the last saved one, and returns the last
// saved one.
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
