package host

import (
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestFleetErasure: the status says which hosts have not confirmed an erasure, at once and until the last one has.
func TestFleetErasure(t *testing.T) {
	t.Parallel()
	_, url := fleetEngine(t)
	a, b := newSeenHost(t, url, "a"), newSeenHost(t, url, "b")
	user, admin := ckpt.Caller{Owner: "uid:1001"}, ckpt.Caller{Owner: "uid:0", Admin: true}
	a.has(user.Owner, "x")
	again(t, b.ship)
	again(t, a.ship)
	if _, err := a.store.Erase(t.Context(), ckpt.Scope{Caller: user}, "x"); err != nil {
		t.Fatal(err)
	}
	if err := a.ship.once(t.Context()); err != nil {
		t.Fatal(err)
	}
	if told := a.status(admin).Erasures; len(told) != 1 || len(told[0].Waits) != 1 || told[0].Waits[0].Name != "b" {
		t.Errorf("at once, the status of the host says %+v", told)
	}
	again(t, b.ship)
	if told := b.status(admin).Erasures; len(told) != 0 {
		t.Errorf("a host that has just confirmed the last erasure still says %+v", told)
	}
}
