package daemon

import (
	"context"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/periodic"
)

// keepBeats writes the heartbeats of runs that have waited in memory for monitor.heartbeats. A failure is logged once as long as it stays
// the same; the next round tries again.
func (s *service) keepBeats(ctx context.Context) {
	said := ""
	_ = periodic.Every(ctx, time.Second, func(ctx context.Context) error {
		err := s.store.KeepBeats(ctx, false)
		text := ""
		if err != nil && ctx.Err() == nil {
			text = err.Error()
		}
		if text != "" && text != said {
			s.log.Warn("heartbeats could not be written; the next round tries again", "error", err)
		}
		said = text
		return nil
	})
}
