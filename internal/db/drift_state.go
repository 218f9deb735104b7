package db

import "time"

// drifts is what the store knows of the drift of runs.
type drifts struct {
	*core
	watches      watches
	calibrations calibrations
	shared       shared
	ticked       map[int64]time.Time // by run: when TickDrift last asked its watch
	tickedTo     int64               // the run up to which it got, 0 where it saw all
}

// newDrifts watches over the runs of a store.
func newDrifts(c *core) *drifts {
	s := &drifts{core: c}
	s.watches.most = c.opt.Watches
	c.forgetPast, c.onDamage, c.rolledBack = s.watches.drop, s.findDamage, s.forgetWatched
	return s
}
