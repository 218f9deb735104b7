package fleet_test

import (
	"testing"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

func TestGroundOfAClaim(t *testing.T) {
	left := func(s float64) *float64 { return &s }
	const grace = 5 * time.Second
	for name, c := range map[string]struct {
		run   fleet.Claimable
		force bool
		want  fleet.Ground
		wait  time.Duration
	}{
		"the lease is held":                {run: fleet.Claimable{Lease: left(7), SeenAgo: 600}, wait: 12 * time.Second},
		"the lease is over, not the grace": {run: fleet.Claimable{Lease: left(-3)}, wait: 2 * time.Second},
		"lease and grace are over":         {run: fleet.Claimable{Lease: left(-5.1)}, want: fleet.GroundLease},
		"released":                         {run: fleet.Claimable{Lease: left(7), Released: true}, want: fleet.GroundReleased},
		"drained":                          {run: fleet.Claimable{Lease: left(7), Drained: true}, want: fleet.GroundDrained},
		"no lease, heard of lately":        {run: fleet.Claimable{SeenAgo: 100}, wait: 20 * time.Second},
		"no lease, silent":                 {run: fleet.Claimable{SeenAgo: 121}, want: fleet.GroundSilent},
		"forced":                           {run: fleet.Claimable{Lease: left(7)}, force: true, want: fleet.GroundForced, wait: 12 * time.Second},
	} {
		if got := c.run.Ground(grace, c.force); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if got := c.run.Wait(grace); got != c.wait {
			t.Errorf("%s: wait %v, want %v", name, got, c.wait)
		}
	}
}
