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

// New watches over the runs of a store.
func New(c *ledger.Core) *Drifts {
	s := &Drifts{Core: c}
	s.Watches.most = c.Opt.Watches
	c.ForgetPast, c.OnDamage, c.RolledBack = s.Watches.drop, s.findDamage, s.forgetWatched
	return s
}
