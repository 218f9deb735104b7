package host

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// erasure asks the daemon of a host, as the caller, which hosts have confirmed an erasure.
func (h *seenHost) erasure(caller ckpt.Caller, n int64) (f ckpt.ErasedFleet) {
	h.t.Helper()
	if err := json.Unmarshal([]byte(h.ask(caller, fmt.Sprint("/v1/fleet/erasures/", n), 200)), &f); err != nil {
		h.t.Fatal(err)
	}
	return f
}

// TestFleetErasure asks which hosts have confirmed an erasure, from before the engine has it until the last host
// has confirmed.
func TestFleetErasure(t *testing.T) {
	t.Parallel()
	_, url := fleetEngine(t)
	a, b := newSeenHost(t, url, "a"), newSeenHost(t, url, "b")
	user, other := ckpt.Caller{Owner: "uid:1001"}, ckpt.Caller{Owner: "uid:1002"}
	admin := ckpt.Caller{Owner: "uid:0", Admin: true}
	a.has(user.Owner, "x")
	again(t, b.ship)
	again(t, a.ship)
	sc := ckpt.Scope{Caller: user}
	if _, err := a.store.Erase(t.Context(), sc, "x"); err != nil {
		t.Fatal(err)
	}
	at := newView(a.ship, a.store).Erased(t.Context(), user.Owner, "x")
	waits := func(when string, confirmed, waiting []string) {
		t.Helper()
		for _, caller := range []ckpt.Caller{user, admin} {
			if f := a.erasure(caller, at.N); f.N != at.N || !slices.Equal(f.Confirmed, confirmed) || !slices.Equal(f.Waiting, waiting) {
				t.Errorf("%s, %s is told %+v", when, caller.Owner, f)
			}
		}
	}
	waits("before the engine has it", []string{"a"}, []string{"b"})
	if err := a.ship.once(t.Context()); err != nil {
		t.Fatal(err)
	}
	waits("when the engine has it", []string{"a"}, []string{"b"})
	if told := a.status(admin).Erasures; len(told) != 1 || len(told[0].Waits) != 1 || told[0].Waits[0].Name != "b" {
		t.Errorf("at once, the status of the host says %+v", told)
	}
	again(t, b.ship)
	if told := b.status(admin).Erasures; len(told) != 0 {
		t.Errorf("a host that has just confirmed the last erasure still says %+v", told)
	}
	waits("when all have confirmed", []string{"a", "b"}, []string{})
	a.ask(other, fmt.Sprint("/v1/fleet/erasures/", at.N), 404)
	a.ask(user, fmt.Sprint("/v1/fleet/erasures/", at.N+100), 404)
	a.ask(user, fmt.Sprint("/v1/fleet/erasures/", 1), 404) // this row is not an erasure
}
