package daemon

import (
	"context"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/periodic"
)

// sweepEvery is the interval at which the daemon looks for files that no checkpoint names
// anymore, and for erasures that are not finished.
const sweepEvery = time.Minute

// sweepFiles regularly removes files that no checkpoint names anymore, and finishes erasures.
func (s *service) sweepFiles(ctx context.Context) {
	_ = periodic.Run(ctx, func(ctx context.Context) time.Duration {
		if err := s.store.SweepFiles(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("files without a checkpoint could not be removed yet", "error", err)
		}
		if err := s.store.FinishErasures(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("an erasure could not be finished yet", "error", err)
		}
		return sweepEvery
	})
}
