package host

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// silent ships everything of a host, and lets its lease be over.
func (r *roaming) silent(server interface{ Exec(string, string) }) {
	r.t.Helper()
	waitShipped(r.t, r)
	server.Exec("fleet", `UPDATE fleet_hosts SET lease_until = clock_timestamp() - interval '1 hour' WHERE db = '`+r.store.ID+`'`)
}

// claimant makes a claimant of a host, for tests that change it.
func (r *roaming) claimant() *claimant {
	url, _ := r.s.shipper.url()
	c := claimantOf(r.store, url, r.s.shipper.host.Name)
	c.grace, c.who, c.lease, c.bringing = 5*time.Second, r.s.shipper.identities, r.s.lease(), make(chan struct{}, 1)
	return c
}

// TestStandbyThatIsLate: if another host was faster, a standby is told to ask again.
func TestStandbyThatIsLate(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	one, two, three := roamingHost(t, url, "one"), roamingHost(t, url, "two"), roamingHost(t, url, "three")
	one.policy("a", fleetPolicy)
	if a := one.save("a", ""); a.status != 201 {
		t.Fatalf("%+v", a)
	}
	one.silent(server)
	late := three.claimant()
	late.shipped = func(context.Context, int64) error { // after it has found the run
		if p := two.resume("a", `{}`); p.Fleet == nil {
			t.Errorf("the faster host: %+v", p)
		}
		return nil
	}
	err := late.Bring(t.Context(), fleetUser, &ckpt.ResumeRequest{Agent: "a", Standby: true})
	var e *ckpt.Error
	if !errors.As(err, &e) || e.Code != ckpt.CodeConflict || e.RetryAfter == 0 {
		t.Errorf("the slower host is answered %+v", err)
	}
	late.shipped = nil
	if err := late.Bring(t.Context(), fleetUser, &ckpt.ResumeRequest{Agent: "a", Standby: true}); !strings.Contains(fmt.Sprint(err), "host two") {
		t.Errorf("when it asks again: %v", err)
	}
}

// TestClaimedRunHasNoLivingOwner: a run whose owner only sent heartbeats can go on at once
// on the host that has claimed it.
func TestClaimedRunHasNoLivingOwner(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	one, two := roamingHost(t, url, "one"), roamingHost(t, url, "two")
	for agent, policy := range map[string]string{"beats": fleetPolicy, "pays": fleetPolicy, "local": `{"takeover":"auto"}`, "asks": `{"durability":"fleet","autoresume":false}`} {
		one.policy(agent, policy)
		if a := one.ask("POST", "/v1/agents/"+agent+"/runs", `{"run":"main","heartbeat_timeout":"1h"}`); a.status != 201 {
			t.Fatalf("%s: %+v", agent, a)
		}
		if a := one.save(agent, ""); a.status != 201 {
			t.Fatalf("%s: %+v", agent, a)
		}
	}
	if a := one.ask("POST", "/v1/agents/pays/runs/main/operations", `{"key":"o1","name":"pay"}`); a.status != 201 {
		t.Fatalf("%+v", a)
	}
	one.silent(server)
	for agent, want := range map[string]string{"beats": "repair running", "pays": "ask interrupted", "local": "ask interrupted", "asks": "ask interrupted"} {
		p := two.resume(agent, `{}`)
		run, err := two.store.Run(t.Context(), fleetUser, ckpt.RunRef{Agent: agent})
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Verdict + " " + string(run.Status); got != want || p.Fleet == nil {
			t.Errorf("%s: %s, want %s: %q", agent, got, want, p.Reasons)
		}
	}
}
