package driftlog

import (
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
)

// Drifts is what the store knows of the drift of runs.
type Drifts struct {
	*ledger.Core
	Watches      watches
	calibrations calibrations
	Shared       shared
	Ticked       map[int64]time.Time // by run: when TickDrift last asked its watch
	tickedTo     int64               // the run up to which it got, 0 where it saw all
}
