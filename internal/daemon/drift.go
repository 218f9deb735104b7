package daemon

import (
	"context"
	"log/slog"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/periodic"
)

// ticker does something for the store again and again: it tells the drift detectors that time has passed, or writes heartbeats that have
// waited in memory. The store decides what is due, and bounds the work of a tick.
type ticker struct {
	tick  func(ctx context.Context) error
	every time.Duration
	log   *slog.Logger
	fails string // what is logged of a failure
	said  string // the failure that was logged last
}

// run ticks until ctx ends. It logs a failure once as long as the failure stays the same.
// The next tick tries again.
func (t *ticker) run(ctx context.Context) {
	_ = periodic.Every(ctx, t.every, func(ctx context.Context) error { t.once(ctx); return nil })
}

func (t *ticker) once(ctx context.Context) {
	err := t.tick(ctx)
	if ctx.Err() != nil {
		return
	}
	said, text := t.said, ""
	if err != nil {
		text = err.Error()
	}
	if t.said = text; text != "" && text != said {
		t.log.Warn(t.fails+"; the next round tries again", "error", err)
	}
}
