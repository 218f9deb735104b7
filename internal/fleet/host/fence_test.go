package host

import (
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestFenceOutlivesTheRun: a host comes back after the new owner of its run has continued the run and removed it.
// The run must not continue from its old state, because the steps of the new owner would be done twice.
func TestFenceOutlivesTheRun(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	a, b := newHealHost(t, url, "a"), newHealHost(t, url, "b")
	must := failsOn(t)
	must(a.saves(`{"n":1}`))
	must(saveOne(a.store, t, "other", `{"n":1}`))
	again(t, a.ship)
	a.ship.hangUp()
	must(b.claims(true))
	again(t, b.ship)
	must(b.saves(`{"n":2}`))
	again(t, b.ship)
	_, err := b.store.DeleteRun(t.Context(), fleetAdminOf("uid:1001"), ckpt.RunRef{Agent: "a", Run: "main"}, true)
	must(err)
	again(t, b.ship)
	if got := owner(server); got != "" {
		t.Fatalf("the run is still of host %s: this test sees nothing", got)
	}

	must(a.saves(`{"n":"strand"}`)) // it does not know about the claim yet
	again(t, a.ship)
	again(t, a.ship)
	wantRefused(t, a.saves(`{}`), ckpt.CodeFenced, "host b of the fleet has claimed run main")
	if got := owner(server); got != "" {
		t.Errorf("host %s has shipped the run again", got)
	}
	must(saveOne(a.store, t, "other", `{"n":2}`))
	again(t, a.ship)
	if got := server.Rows("fleet", `SELECT h.name, r.seq FROM fleet_runs r JOIN fleet_hosts h ON h.db = r.host WHERE r.run = 'other'`); len(got) != 1 || got[0] != "a 2" {
		t.Errorf("a run that nobody has claimed is in the engine as %q", got)
	}
	names, err := a.ship.unsettled(t.Context())
	must(err)
	if len(names) > 0 {
		t.Errorf("%+v would be sent for nothing at each connection", names)
	}
	if got := a.strand(); got != 1 {
		t.Errorf("the strand has %d checkpoints, want the one after the claim", got)
	}
	wantRefused(t, a.saves(`{}`), ckpt.CodeFenced, "has claimed run main")
}

// TestFenceOfAClaimThatIsLost: the engine goes back to a state without a run, and the new owner ships the run
// again. The claim no longer tells the former owner that it is fenced, but the refusal of its batch does.
func TestFenceOfAClaimThatIsLost(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	a, b := newHealHost(t, url, "a"), newHealHost(t, url, "b")
	must := failsOn(t)
	again(t, a.ship)
	again(t, b.ship)
	back := server.Backup()
	must(a.saves(`{"n":1}`))
	again(t, a.ship)
	must(b.claims(true))
	again(t, b.ship)
	must(b.saves(`{"n":2}`))
	again(t, b.ship)
	a.ship.hangUp()
	back()
	again(t, b.ship)
	if got := owner(server) + server.Rows("fleet", `SELECT count(*) FROM fleet_claims`)[0]; got != "b 10" {
		t.Fatalf("host b should own the run under term 1 without a claim, got %s: this test sees nothing", got)
	}

	must(a.saves(`{"n":"strand"}`)) // it does not know about the claim yet
	again(t, a.ship)
	again(t, a.ship)
	must(AcceptBack(t.Context(), a.engineURL()))
	again(t, a.ship)
	wantRefused(t, a.saves(`{}`), ckpt.CodeFenced, "host b of the fleet has claimed run main")
	if got := a.strand(); got != 2 {
		t.Errorf("the strand has %d checkpoints, want all that this host has", got)
	}
	if got := owner(server); got != "b 1" {
		t.Errorf("the owner is %s", got)
	}
}
