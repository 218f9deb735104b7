package driftlog

import (
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
)

// New makes a Drifts that watches over the runs of a store.
func New(c *ledger.Core) *Drifts {
	s := &Drifts{Core: c}
	s.Watches.most = c.Opt.Watches
	s.calibrations.groups, s.calibrations.looked = map[calibratedGroup]*calibrated{}, map[int64]time.Time{}
	c.ForgetPast, c.OnDamage, c.RolledBack = s.Watches.drop, s.findDamage, s.forgetWatched
	return s
}
