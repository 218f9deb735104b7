package host

import (
	"context"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// TestReleaseOfARunThatBegins: a run that begins while it is released stays with its host.
func TestReleaseOfARunThatBegins(t *testing.T) {
	t.Parallel()
	_, url := fleetEngine(t)
	one, two := roamingHost(t, url, "one"), roamingHost(t, url, "two")
	one.policy("a", fleetPolicy)
	if a := one.save("a", ""); a.status != 201 {
		t.Fatalf("%+v", a)
	}
	if a := one.ask("POST", "/v1/agents/a/runs/main/end", `{"status":"interrupted"}`); a.status != 200 {
		t.Fatalf("%+v", a)
	}
	waitShipped(t, one)
	c := claimantOf(one.store, url, "one")
	c.url = func() (string, error) { // after the run was looked at
		if p := one.resume("a", `{}`); !p.Claimed {
			t.Errorf("the run begins: %+v", p)
		}
		if err := one.s.Began(t.Context(), fleetUser, "a", ""); err != nil {
			t.Error(err)
		}
		return url, nil
	}
	if _, err := c.Release(t.Context(), fleetUser, ckpt.RunRef{Agent: "a"}); ckpt.CodeOf(err) != ckpt.CodeConflict {
		t.Errorf("the release answers %v", err)
	}
	if p := two.resume("a", `{}`); p.status != 409 {
		t.Errorf("another host takes a running run: %+v", p)
	}
}

// TestDrainIsTakenBackInTheMiddle: a drain that is taken back while it waits lets go of nothing.
func TestDrainIsTakenBackInTheMiddle(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	one, two := roamingHost(t, url, "one"), roamingHost(t, url, "two")
	one.policy("a", fleetPolicy)
	if a := one.save("a", ""); a.status != 201 {
		t.Fatalf("%+v", a)
	}
	waitShipped(t, one)
	keeper := one.s.shipper.keeper
	one.clock.pass(11 * time.Second)
	drained := make(chan error, 1)
	go func() {
		_, err := one.s.API().Drain(context.Background(), fleetAdmin, fleet.DrainRequest{})
		drained <- err
	}()
	for !keeper.draining.Load() {
		time.Sleep(time.Millisecond)
	}
	if _, err := one.s.API().Drain(t.Context(), fleetAdmin, fleet.DrainRequest{Undo: true}); err != nil {
		t.Fatal(err)
	}
	if err := keeper.renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-drained; ckpt.CodeOf(err) != ckpt.CodeConflict {
		t.Errorf("the drain answers %v", err)
	}
	if err := keeper.renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !one.s.lease().Held() {
		t.Error("the host does not hold its lease")
	}
	if got := server.Rows("fleet", `SELECT count(*) FROM fleet_hosts WHERE drained = 1`); got[0] != "0" {
		t.Errorf("the engine has %s drained hosts", got[0])
	}
	if p := two.resume("a", `{}`); p.status != 409 {
		t.Errorf("another host takes the run: %+v", p)
	}
}
