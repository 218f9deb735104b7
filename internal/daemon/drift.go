package daemon

import (
	"context"
	"log/slog"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/periodic"
)

// ticker lets time go by for the drift detectors. Its store decides what is
// due; a tick is bounded there.
type ticker struct {
	store interface {
		TickDrift(ctx context.Context) error
	}
	every time.Duration
	log   *slog.Logger
	said  string // the failure that was last logged
}

// run ticks until ctx ends. A failure is logged once for as long as it stays
// the same; the next tick tries again.
func (t *ticker) run(ctx context.Context) {
	_ = periodic.Every(ctx, t.every, func(ctx context.Context) error { t.once(ctx); return nil })
}

func (t *ticker) once(ctx context.Context) {
	err := t.store.TickDrift(ctx)
	if ctx.Err() != nil {
		return
	}
	said, text := t.said, ""
	if err != nil {
		text = err.Error()
	}
	if t.said = text; text != "" && text != said {
		t.log.Warn("runs could not be checked for drift; the next round tries again", "error", err)
	}
}
