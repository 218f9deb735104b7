package driftlog

import (
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
)

// Drifts holds what the store knows of the drift of runs.
type Drifts struct {
	*ledger.Core
	Watches      watches
	calibrations calibrations
	Shared       shared
	Ticked       map[int64]time.Time // by run: when TickDrift last asked its watch
	tickedTo     int64               // the run at which the last tick stopped, 0 if it reached all
}
