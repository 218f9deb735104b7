package host

import (
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// TestRelease: a run that its owner has ended or released can be claimed at once. A run that begins again before a
// claim stays with its host.
func TestRelease(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	one, two := roamingHost(t, url, "one"), roamingHost(t, url, "two")
	began := func(h *roaming, agent string) resumed {
		t.Helper()
		p := h.resume(agent, `{}`)
		if p.status != 200 || !p.Claimed {
			t.Fatalf("%s begins: %+v", agent, p)
		}
		if err := h.s.Began(t.Context(), fleetUser, agent, ""); err != nil {
			t.Fatal(err)
		}
		return p
	}
	end := func(h *roaming, agent, status string) {
		t.Helper()
		if a := h.ask("POST", "/v1/agents/"+agent+"/runs/main/end", `{"status":"`+status+`"}`); a.status != 200 {
			t.Fatalf("%s ends: %+v", agent, a)
		}
		waitShipped(t, h)
	}
	for _, agent := range []string{"paused", "again", "crashed"} {
		one.policy(agent, fleetPolicy)
		began(one, agent)
		if a := one.save(agent, ""); a.status != 201 {
			t.Fatalf("%s: %+v", agent, a)
		}
	}
	release := func(agent string) answered { return one.ask("POST", "/v1/agents/"+agent+"/runs/main/release", "") }
	if a := release("paused"); a.status != 409 || !strings.Contains(a.Detail, "is running") || strings.Contains(a.Detail, "process 0") {
		t.Errorf("a running run: %+v", a)
	}
	end(one, "paused", "suspended")
	end(one, "again", "suspended")
	end(one, "crashed", "interrupted")
	began(one, "again")
	if p := two.resume("again", `{}`); p.status != 409 {
		t.Errorf("a run that its host has begun again: %+v", p)
	}
	if p := two.resume("crashed", `{}`); p.status != 409 {
		t.Errorf("a run that was only interrupted: %+v", p)
	}
	if p := two.resume("paused", `{}`); p.Verdict != "repair" || p.Fleet == nil || p.Fleet.StrandPossible {
		t.Errorf("a run that its owner has ended: %+v %+v", p, p.Fleet)
	}
	if a := release("crashed"); a.status != 200 {
		t.Errorf("released: %+v", a)
	}
	if p := two.resume("crashed", `{"standby":true}`); p.Verdict != "repair" || p.Fleet == nil {
		t.Errorf("a run that was released: %+v", p)
	}
	if got := server.Rows("fleet", `SELECT DISTINCT how FROM fleet_claims`); len(got) != 1 || got[0] != "released" {
		t.Errorf("the claims are noted as %q", got)
	}
	if p := two.resume("nobody", `{"standby":true}`); p.status != 409 || !strings.Contains(p.Detail, "no host of the fleet") {
		t.Errorf("nothing to stand by for: %+v", p)
	}
}

// TestDrain: a drained host begins nothing, and other hosts can claim its runs at once.
func TestDrain(t *testing.T) {
	t.Parallel()
	server, _, one, two := twoHosts(t, fleetPolicy)
	if _, err := one.s.API().Drain(t.Context(), fleetUser, fleet.DrainRequest{}); ckpt.CodeOf(err) != ckpt.CodeDenied {
		t.Errorf("a user drains the host: %v", err)
	}
	one.clock.pass(11 * time.Second) // this leaves one second, which a drain waits for
	done, err := one.s.API().Drain(t.Context(), fleetAdmin, fleet.DrainRequest{})
	if err != nil || !done.Drained {
		t.Fatalf("drained: %+v, %v", done, err)
	}
	if got := server.Rows("fleet", `SELECT drained FROM fleet_hosts WHERE name = 'one' AND lease_until <= clock_timestamp()`); len(got) != 1 || got[0] != "1" {
		t.Errorf("the engine has %q of the host", got)
	}
	if err := one.s.shipper.keeper.renew(t.Context()); err == nil || one.s.lease().Held() {
		t.Errorf("a drained host renews its lease: %v", err)
	}
	if a := one.ask("POST", "/v1/agents/a/runs/main/steps", `{"key":"s","name":"x"}`); a.Code != "fenced" {
		t.Errorf("a step begins on a drained host: %+v", a)
	}
	if p := two.resume("a", `{}`); p.Verdict != "repair" || p.Fleet == nil || p.Fleet.StrandPossible {
		t.Errorf("claimed: %+v, %+v", p, p.Fleet)
	}
	if _, err := one.s.API().Drain(t.Context(), fleetAdmin, fleet.DrainRequest{Undo: true}); err != nil {
		t.Fatal(err)
	}
	one.s.shipper.keeper.hangUp()
	if err := one.s.shipper.keeper.renew(t.Context()); err != nil || !one.s.lease().Held() {
		t.Errorf("after the drain was taken back: %v", err)
	}
	if got := server.Rows("fleet", `SELECT count(*) FROM fleet_hosts WHERE drained = 1`); got[0] != "0" {
		t.Errorf("%s hosts are drained", got[0])
	}
}
