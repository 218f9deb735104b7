package monitor

import (
	"context"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/liveness"
)

// store is what the monitor needs of the database. Each call errs with a
// *ckpt.Error.
type store interface {
	// Watched answers the running runs that have a known owner process or a
	// timeout, by ascending id: those after the given one, at most limit. It
	// should err while the store takes no writes: it takes no heartbeats then,
	// and nobody may be called silent for that.
	Watched(ctx context.Context, after int64, limit int) ([]liveness.Run, error)

	// Interrupt gives a run its new status, interrupted or timed_out, in one
	// transaction with all that follows: open steps are interrupted, open
	// operations uncertain, the reason has an audit row, and there is a prompt
	// where the policy says autoresume false. It does so only if the run is
	// still running and of the same epoch, and for timed_out only if LastBeat
	// and LastProgress are still what they were: equal, not "no newer", because
	// the clock may have been set back. It answers whether it did.
	Interrupt(ctx context.Context, run liveness.Run, status ckpt.RunStatus, reason string) (bool, error)
}
