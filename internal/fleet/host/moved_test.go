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
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
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
	server, _, one, two := twoHosts(t, fleetPolicy)
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
	c.grace, c.who, c.lease = 5*time.Second, r.s.shipper.identities, r.s.lease()
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

// TestManyHostsHaveTheName: a run is found however many hosts have runs of the same name.
func TestManyHostsHaveTheName(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	one, two := roamingHost(t, url, "one"), roamingHost(t, url, "two")
	for _, agent := range []string{"a", "b"} {
		one.policy(agent, fleetPolicy)
		if a := one.save(agent, ""); a.status != 201 {
			t.Fatalf("%+v", a)
		}
	}
	one.silent(server)
	for _, of := range []string{"host/", "acme/other"} {
		server.Exec("fleet", fmt.Sprintf(`
			INSERT INTO fleet_hosts (db, name, version, schema, incarnation, registered_at, lease_until)
				SELECT '%[1]s' || i, 'h' || i, '', 1, 1, clock_timestamp(), clock_timestamp() + interval '1 hour' FROM generate_series(1, 30) i;
			INSERT INTO fleet_marks (db, mark_n, mark_hash, beats, seen_at) SELECT '%[1]s' || i, 1, '', 1, clock_timestamp() FROM generate_series(1, 30) i;
			INSERT INTO fleet_agents (uid, host, owner, agent, v, doc, principal, takeover)
				SELECT '%[1]sagent' || i || g, '%[1]s' || i, 'uid:1001', g, 2, '{}', '%[1]s' || i, 'auto' FROM generate_series(1, 30) i, unnest(array['a', 'b']) g;
			INSERT INTO fleet_runs (uid, agent_uid, host, owner, agent, run, term, as_of_n, status, updated_at, seq, v, doc, principal)
				SELECT '%[1]srun' || i || g, '%[1]sagent' || i || g, '%[1]s' || i, 'uid:1001', g, 'main', 0, 1, 'running', '2099', 1, 2, '{}', '%[1]s' || i
				FROM generate_series(1, 30) i, unnest(array['a', 'b']) g`, of))
	}
	if p := two.resume("a", `{}`); p.Verdict != "repair" || p.Fleet == nil || p.Fleet.FromHost != "one" {
		t.Errorf("the run of a lost host: %+v", p)
	}
	done, err := two.s.API().Claim(t.Context(), fleetUser, fleet.ClaimRequest{Agent: "b", Run: "main"})
	if err != nil || done.From != "one" {
		t.Errorf("a user claims his run: %+v, %v", done, err)
	}
}

// TestBringingMayTakeLong: a run is brought here however long that takes, once the engine
// has given it to this host.
func TestBringingMayTakeLong(t *testing.T) {
	t.Parallel()
	server, _, one, two := twoHosts(t, fleetPolicy)
	one.silent(server)
	c := two.claimant()
	c.learn = func(ctx context.Context, _ *pg.Engine, _ string) error { // when the engine has given the run to two
		<-ctx.Done()
		return nil
	}
	r := ckpt.ResumeRequest{Agent: "a"}
	if err := c.Bring(t.Context(), fleetUser, &r); err != nil || r.Claimed == nil {
		t.Errorf("a run that takes long is brought as %+v, %v", r.Claimed, err)
	}
}

// TestPlanOfAClaimThatWasInterrupted: a claim that is repeated tells of the former owner, not
// of this host.
func TestPlanOfAClaimThatWasInterrupted(t *testing.T) {
	t.Parallel()
	server, url, one, two := twoHosts(t, `{"takeover":"auto"}`)
	one.silent(server)
	one.stop()
	server.Exec("fleet", `UPDATE fleet_marks SET seen_at = seen_at - interval '1 hour' WHERE db = '`+one.store.ID+`'`)
	c := claimantOf(two.store, url, "two")
	e, err := c.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found, err := e.Find(t.Context(), fleet.ClaimRequest{Agent: "a"})
	if err != nil || len(found) != 1 {
		t.Fatalf("found %+v, %v", found, err)
	}
	if _, err := e.Claim(t.Context(), fleet.Claim{Run: &found[0], To: two.store.ID, By: "uid:0", Ground: fleet.GroundLease}); err != nil {
		t.Fatal(err)
	}
	e.Close()
	p := two.resume("a", `{}`)
	if p.Fleet == nil || p.Fleet.FromHost != "one" || time.Duration(p.Fleet.LostAtMost) < time.Hour {
		t.Errorf("the plan says %+v of %v", p.Fleet, p.Reasons)
	}
}

// TestPlanOfAClaimIsToldAgain: until the run has saved something here, each plan says that it
// was claimed.
func TestPlanOfAClaimIsToldAgain(t *testing.T) {
	t.Parallel()
	server, _, one, two := twoHosts(t, fleetPolicy)
	one.silent(server)
	for range 2 {
		if p := two.resume("a", `{}`); p.Verdict != "repair" || p.Fleet == nil || p.Fleet.FromHost != "one" {
			t.Errorf("%+v", p)
		}
	}
	if a := two.save("a", ""); a.status != 201 {
		t.Fatalf("%+v", a)
	}
	two.claimsNothing("a run that has saved since", "a", `{}`, "resume")
}

// TestReleaseLasts: a run that was released stays released when its host changes something about it, until it
// begins again.
func TestReleaseLasts(t *testing.T) {
	t.Parallel()
	_, url := fleetEngine(t)
	one, two := roamingHost(t, url, "one"), roamingHost(t, url, "two")
	one.policy("a", fleetPolicy)
	saved := newID()
	if a := one.save("a", saved); a.status != 201 {
		t.Fatalf("%+v", a)
	}
	if a := one.ask("POST", "/v1/agents/a/runs/main/end", `{"status":"interrupted"}`); a.status != 200 {
		t.Fatalf("%+v", a)
	}
	if a := one.ask("POST", "/v1/agents/a/runs/main/release", ""); a.status != 200 {
		t.Fatalf("released: %+v", a)
	}
	if a := one.ask("PATCH", "/v1/checkpoints/"+saved, `{"pinned":true}`); a.status != 200 {
		t.Fatalf("pinned: %+v", a)
	}
	waitShipped(t, one)
	if p := two.resume("a", `{}`); p.Fleet == nil {
		t.Errorf("a released run of which a checkpoint was pinned: %+v", p)
	}
}

// TestDrainedHostMayGoOn: nobody knows what an agent that goes on without a lease has done on a drained host.
func TestDrainedHostMayGoOn(t *testing.T) {
	t.Parallel()
	_, url := fleetEngine(t)
	one, two := roamingHost(t, url, "one"), roamingHost(t, url, "two")
	one.policy("a", `{"takeover":"manual"}`)
	if a := one.ask("POST", "/v1/agents/a/runs", `{"run":"main","heartbeat_timeout":"1h"}`); a.status != 201 {
		t.Fatalf("%+v", a)
	}
	if a := one.save("a", ""); a.status != 201 {
		t.Fatalf("%+v", a)
	}
	one.clock.pass(12 * time.Second)
	if _, err := one.s.API().Drain(t.Context(), fleetAdmin, fleet.DrainRequest{}); err != nil {
		t.Fatal(err)
	}
	if a := one.save("a", ""); a.status != 201 {
		t.Fatalf("it goes on: %+v", a)
	}
	done, err := two.s.API().Claim(t.Context(), fleetAdmin, fleet.ClaimRequest{Agent: "a"})
	if err != nil || done.Uncertain == "" {
		t.Errorf("claimed: %+v, %v", done, err)
	}
}
