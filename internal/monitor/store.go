package monitor

import (
	"context"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/liveness"
)

// store is what the monitor needs from the database. Each call returns errors as
// *ckpt.Error.
type store interface {
	// Watched returns the running runs that have a known owner process or a timeout, by
	// ascending id: those after the given one, at most limit. It should return an error
	// while the store accepts no writes. The store accepts no heartbeats then, so no owner
	// may be called silent.
	Watched(ctx context.Context, after int64, limit int) ([]liveness.Run, error)

	// Interrupt gives a run its new status, interrupted or timed_out, in one transaction
	// with all consequences: open steps become interrupted and open operations uncertain,
	// the reason gets an audit row, and a prompt is made if the policy says autoresume
	// false. It does so only if the run is still running and has the same epoch. For
	// timed_out, LastBeat and LastProgress must also be unchanged: equal, not "no newer",
	// because the clock may have been set back. It returns whether it did.
	Interrupt(ctx context.Context, run liveness.Run, status ckpt.RunStatus, reason string) (bool, error)
}
