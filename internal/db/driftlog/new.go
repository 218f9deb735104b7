package driftlog

import "github.com/ckptsidecar/ckptsidecar/internal/db/ledger"

// New makes a Drifts that watches over the runs of a store.
func New(c *ledger.Core) *Drifts {
	s := &Drifts{Core: c}
	s.Watches.most = c.Opt.Watches
	c.ForgetPast, c.OnDamage, c.RolledBack = s.Watches.drop, s.findDamage, s.forgetWatched
	return s
}
