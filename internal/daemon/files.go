package daemon

import (
	"context"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/periodic"
)

// sweepEvery is how often files are looked at that no checkpoint names any more.
const sweepEvery = time.Minute

// sweepFiles removes files that no checkpoint names any more, again and again.
func (s *service) sweepFiles(ctx context.Context) {
	_ = periodic.Run(ctx, func(ctx context.Context) time.Duration {
		if err := s.store.SweepFiles(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("files without a checkpoint could not be removed yet", "error", err)
		}
		return sweepEvery
	})
}
