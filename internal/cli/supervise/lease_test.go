package supervise

import (
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestACommandEndsBeforeAClaim: also a command that ignores the request to stop has ended
// when another host may claim its run, with the shortest grace that a claimant may wait.
func TestACommandEndsBeforeAClaim(t *testing.T) {
	t.Parallel()
	const shortestGrace = time.Second
	for _, lease := range []time.Duration{5 * time.Second, 15 * time.Second, 10 * time.Minute} {
		var l hostLease
		left := lease - lease/5
		l.heard(&ckpt.Run{Lease: ckpt.LeaseHeld, LeaseLeftMS: left.Milliseconds(), OnLeaseLost: ckpt.LeaseLostStop}, 0)
		if killed := l.until + leaseLook + l.grace(); killed >= lease+shortestGrace {
			t.Errorf("with a lease of %s the command is killed after %s", lease, killed)
		}
	}
}
