package console

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	real "github.com/ckptsidecar/ckptsidecar/internal/daemon"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	member "github.com/ckptsidecar/ckptsidecar/internal/fleet/host"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pgtest"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

func fleetForTests() *fleetView {
	left, over := 12.0, -40.0
	v := &fleetView{frame: frameForTests(), Status: &fleet.Status{
		On: true, State: fleet.StateShipping, Name: "alpha", Engine: "PostgreSQL 15.18", Address: "db1:5432", Unshipped: 3, Lag: 2,
		Clear: true, Lease: "held", LeaseLeft: 12, LeaseSpan: 15,
	}}
	v.Title, v.Admin = "Fleet", true
	v.describe(v.Status)
	hosts := []fleet.HostShown{
		{DB: "db-1", Name: "alpha", Version: "1.2.3", SeenAgo: 1, Runs: 2, This: true, Lease: &left},
		{DB: "db-2", Name: "beta", Version: "1.2.3", SeenAgo: 60, Runs: 1, Lease: &over},
	}
	v.addHosts(hosts)
	v.addStrands([]fleet.Strand{
		{Taken: fleet.Taken{UID: "u-3", Term: 2, Host: "beta"}, Owner: "uid:1001", Agent: "coder", Run: "two", Checkpoints: 3, Rows: 9},
	})
	v.addFilters(hosts, url.Values{"status": {"running"}})
	next := "2026-11-22T12:00:00.000Z/u-2"
	v.addRuns(&fleet.Runs{Next: &next, Runs: []fleet.RunShown{
		{UID: "u-1", DB: "db-1", Host: "alpha", This: true, Owner: "uid:1001", Agent: "coder", Run: "one", Status: "running", Seq: 4, UpdatedAt: noon.String()},
		{UID: "u-2", DB: "db-2", Host: "beta", Owner: "uid:1001", Agent: "<i>bot</i>", Run: "v5", Status: "interrupted", Term: 1, Seq: 1200, UpdatedAt: noon.String()},
	}}, hosts, url.Values{"status": {"running"}})
	return v
}

// TestFleetPage claims runs of a lost host through the forms of the console. The page of that host shows what the
// host did before it heard of the claims.
func TestFleetPage(t *testing.T) {
	server := pgtest.Start(t)
	engine := filepath.Join(t.TempDir(), "engine")
	if err := os.WriteFile(engine, []byte(server.Database("fleet")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := member.Migrate(t.Context(), server.URL("fleet")); err != nil {
		t.Fatal(err)
	}
	database := filepath.Join(t.TempDir(), "alpha.db")
	alpha := func(engine string) *world {
		return worldWith(t, func(c *real.Config) { c.Database, c.FleetName, c.FleetEngine = database, "alpha", engine })
	}
	first := alpha(engine)
	if !first.console.daemon.isAdminNow(t) {
		t.Skip("only an administrator claims runs: run this as root")
	}
	first.save("coder", "one", `{"n": 1}`)
	first.save("coder", "two", `{"n": 1}`)
	for _, run := range []string{"one", "two"} {
		if _, _, err := first.client.EndRun(t.Context(), ckpt.RunRef{Agent: "coder", Run: run}, ckpt.EndRequest{Status: ckpt.RunInterrupted}); err != nil {
			t.Fatal(err)
		}
	}
	beta := worldWith(t, func(c *real.Config) { c.FleetName, c.FleetEngine = "beta", engine })
	beta.eventually("fleet", "coder / one")
	beta.eventually("fleet", "coder / two")
	first.stop()

	for range 2 {
		values, _ := beta.form(beta.formIn(beta.page("fleet"), "ask/claim?"))
		values.Set("force", "1")
		if status, text := beta.act("claim", values); status != 422 {
			t.Errorf("a claim without a reason is answered with %d: %s", status, text)
		}
		values.Set("reason", "alpha is lost")
		for range 2 {
			status, text := beta.act("claim", values)
			if status != 200 || !strings.Contains(text, "Claimed: coder / "+values.Get("run")+" is on this host now, with 1 checkpoint") {
				t.Fatalf("the claim is answered with %d: %s", status, text)
			}
		}
	}
	run, err := client.Operator{Client: beta.client}.Run(t.Context(), ckpt.RunRef{Agent: "coder", Run: "one"})
	if err != nil || fleet.TermOf(run.Epoch) != 1 {
		t.Fatalf("beta has %+v, %v", run, err)
	}
	if said := fmt.Sprint(beta.reasons()); !strings.Contains(said, ": alpha is lost") {
		t.Errorf("the audit log does not have the reason of the claim: %s", said)
	}

	alone := alpha("") // it has not heard of the claim
	alone.save("coder", "one", `{"n": 2}`)
	alone.save("coder", "two", `{"n": 2}`)
	if page := alone.page("system"); strings.Contains(page, `data-key="f"`) {
		t.Error("a daemon without a fleet shows the page of the fleet")
	}
	alone.stop()
	back := alpha(engine)
	for _, run := range []string{"one", "two"} {
		back.eventually("fleet", "coder / "+run+`</a><div class="g">uid:`)
	}
	address := back.formIn(back.page("fleet"), "o/")
	if page := back.page(address); !strings.Contains(page, "Host beta of the fleet has this run") {
		t.Errorf("the page of a run that another host has claimed is %s", page)
	}
}

// isAdminNow reports whether the caller is an administrator.
func (d *daemon) isAdminNow(t *testing.T) bool {
	t.Helper()
	if err := d.learn(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d.isAdmin()
}

// eventually waits until a page contains a text.
func (w *world) eventually(path, text string) {
	w.t.Helper()
	for !strings.Contains(w.page(path), text) {
		select {
		case <-w.t.Context().Done():
			w.t.Fatalf("%s never shows %q", path, text)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// formIn returns the address of the first form of a kind that a page links to.
func (w *world) formIn(page, kind string) string {
	w.t.Helper()
	_, rest, found := strings.Cut(page, `href="`+w.base+kind)
	if !found {
		w.t.Fatalf("the page leads to no %s: %s", kind, page)
	}
	address, _, _ := strings.Cut(rest, `"`)
	return kind + unescaped(address)
}
