package host

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/journal"
	"github.com/ckptsidecar/ckptsidecar/internal/drift"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pgtest"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/seal"
	"github.com/ckptsidecar/ckptsidecar/internal/resume"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

var fleetUser = ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:1001", PID: 11}}

// fleetEngine starts PostgreSQL with the fleet's tables, and returns its URL.
func fleetEngine(t *testing.T) (*pgtest.Server, string) {
	t.Helper()
	server := pgtest.Start(t)
	url := server.Database("fleet")
	if _, _, err := Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	return server, url
}

func openFleetStore(t *testing.T, path string) *db.Store {
	t.Helper()
	s, err := db.Open(t.Context(), db.Options{Path: path, Retention: retention.Plan, Resume: resume.Make, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// configOf returns how commands open a database that no daemon has open. keys
// is "" for none.
func configOf(path, name, keys string) Config {
	return Config{Name: name, KeyFile: keys, Env: os.Getenv, Store: db.Options{
		Path: path, Mode: 0o600, Retention: retention.Plan, Resume: resume.Make, Fits: drift.Fits, Version: "test", WriteTimeout: time.Minute,
	}}
}

func shipperOf(s *db.Store, url, name string) *shipper {
	return &shipper{line: line{url: func() (string, error) { return url, nil }}, reader: journal.New(s.Core), log: slog.New(slog.DiscardHandler), bytes: 1 << 20,
		erase: s.Erase, policy: s.FleetPolicyOf, waiters: newWaiters(), host: fleet.Host{DB: s.ID, Name: name}, pace: fleet.Pace{Floor: 10 * time.Millisecond, Most: 100 * time.Millisecond}}
}

// work does a little of everything on a host that will be lost. Each call begins a payment of its own, pay-1 first: an
// operation that is open cannot begin again.
func work(t *testing.T, s *db.Store) (newest string) {
	t.Helper()
	ref := ckpt.RunRef{Agent: "a", Run: "main"}
	must := failsOn(t)
	for i := range 4 { // each is stored as pieces of the one before
		state := fmt.Appendf(nil, `{"history":"%s","n":%d}`, strings.Repeat("0123456789abcdef", 1200+i), i)
		saved, err := s.Save(t.Context(), fleetUser, &ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: state})
		must(err)
		newest = saved.ID
	}
	_, _, err := s.BeginStep(t.Context(), fleetUser, ref, ckpt.StepRequest{Key: "k1", Name: "search"})
	must(err)
	var begun int
	must(s.RO.Get(&begun, `SELECT count(*) FROM operations`))
	_, _, err = s.BeginOperation(t.Context(), fleetUser, ref, ckpt.OperationRequest{Key: fmt.Sprintf("pay-%d", begun+1), Name: "pay", State: []byte(`{"due":5}`)})
	must(err)
	_, _, err = s.Append(t.Context(), fleetUser, ref, []ckpt.NewEvent{{Type: "x", Payload: ckpt.JSON(`{"a":1}`)}, {Type: "y", Payload: ckpt.JSON(`[]`)}}, "")
	must(err)
	other := ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:1002", PID: 12}}
	_, err = s.Save(t.Context(), other, &ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRoutine, ContentType: "text/plain", State: []byte("of another user")})
	must(err)
	return newest
}

// claimAll claims every run that the engine has of other hosts, as an administrator does with force.
func claimAll(t *testing.T, url string, s *db.Store, keys string, users map[string]string) (all []*fleet.Claimed, refused []error) {
	t.Helper()
	c := claimantOf(s, url, "new")
	c.keys = keysIn(keys)
	c.who = func() *fleet.Identities { return &fleet.Identities{DB: s.ID, Named: users} }
	runs, err := Runs(t.Context(), url, fleet.RunsQuery{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range runs.Runs {
		done, err := c.Claim(t.Context(), fleetAdmin, fleet.ClaimRequest{Agent: r.Agent, Run: r.Run, Owner: r.Owner, Host: r.DB, Force: true})
		if err != nil {
			refused = append(refused, err)
			continue
		}
		all = append(all, done)
	}
	return all, refused
}

// TestClaimAll: all runs of a lost host come to an empty one. The lost host is fenced when it comes back, and the new
// one ships the runs on.
func TestClaimAll(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	lost := openFleetStore(t, filepath.Join(t.TempDir(), "ckpt.db"))
	newest := work(t, lost)
	old := shipperOf(lost, url, "lost")
	defer old.hangUp()
	if err := old.once(t.Context()); err != nil {
		t.Fatal(err)
	}
	uids := server.Rows("fleet", `SELECT uid FROM fleet_runs ORDER BY uid`)
	new := openFleetStore(t, filepath.Join(t.TempDir(), "new.db"))
	done, refused := claimAll(t, url, new, "", nil)
	if len(done) != 2 || len(refused) != 0 || done[0].Uncertain == "" || done[0].Checkpoints+done[1].Checkpoints != 5 {
		t.Fatalf("claimed are %+v, refused %v", done, refused)
	}
	work(t, lost)
	if err := old.once(t.Context()); err != nil { // on its existing connection
		t.Fatal(err)
	}
	if got := server.Rows("fleet", `SELECT DISTINCT term, seq FROM fleet_runs WHERE owner = 'uid:1001'`); !slices.Equal(got, []string{"1 5"}) {
		t.Errorf("what the old host ships is taken: %q", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := old.waiters.Wait(ctx, lost.Committed(), fleet.RunName("uid:1001", "a", "main"), true); ckpt.CodeOf(err) != ckpt.CodeFenced {
		t.Errorf("who waits on the old host is told %v", err)
	}
	restoredGoesOn(t, new, newest)
	shipOnce(t, new, url, "new", nil)
	if got := server.Rows("fleet", `SELECT uid FROM fleet_runs ORDER BY uid`); !slices.Equal(got, uids) {
		t.Errorf("the runs are %q now, and were %q", got, uids)
	}
	for _, table := range []string{"fleet_checkpoints", "fleet_segments"} {
		if got := server.Rows("fleet", `SELECT DISTINCT db FROM `+table); !slices.Equal(got, []string{new.ID}) {
			t.Errorf("%s are of %q", table, got)
		}
	}
	if got := server.Rows("fleet", `SELECT DISTINCT host, term FROM fleet_runs`); !slices.Equal(got, []string{new.ID + " 1"}) {
		t.Errorf("the runs are of %q", got)
	}
}

// TestClaimOfAgentsThatStay: with fleet.ship = "policy" on the new host, what a claim has brought of agents that stay
// there goes from the engine. The rest stays.
func TestClaimOfAgentsThatStay(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	lost := openFleetStore(t, filepath.Join(t.TempDir(), "ckpt.db"))
	work(t, lost)
	shipOnce(t, lost, url, "lost", nil)
	new := openFleetStore(t, filepath.Join(t.TempDir(), "new.db"))
	c := claimantOf(new, url, "new")
	if done, err := c.Claim(t.Context(), fleetAdmin, fleet.ClaimRequest{Agent: "a", Run: "main", Owner: fleetUser.Owner, Force: true}); err != nil || done.Checkpoints != 4 {
		t.Fatalf("the claim answers %+v, %v", done, err)
	}
	s := shipperOf(new, url, "new")
	s.choice.ByPolicy = true
	defer s.hangUp()
	if err := s.once(t.Context()); err != nil || s.strays {
		t.Fatalf("the daemon settles: %v, %v", !s.strays, err)
	}
	if got := server.Rows("fleet", `SELECT owner, run FROM fleet_runs ORDER BY 1, 2`); !slices.Equal(got, []string{"uid:1002 main"}) {
		t.Errorf("the engine has %q", got)
	}
}

// shipOnce ships everything of a store over a connection of its own.
func shipOnce(t *testing.T, s *db.Store, url, name string, keys func() (*seal.Ring, error)) {
	t.Helper()
	ships := shipperOf(s, url, name)
	ships.keys = keys
	if keys != nil {
		ships.who.Store(&fleet.Identities{DB: s.ID, Named: map[string]string{fleetUser.Owner: "acme/build"}})
	}
	defer ships.hangUp()
	if err := ships.once(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// restoredGoesOn checks what a host got back, and continues with it.
func restoredGoesOn(t *testing.T, s *db.Store, newest string) {
	t.Helper()
	got, err := s.Checkpoint(t.Context(), fleetUser, newest, true)
	if err != nil || !strings.Contains(string(got.State), `"n":3`) {
		t.Fatalf("the newest checkpoint is %+v, %v", got, err)
	}
	ref := ckpt.RunRef{Agent: "a", Run: "main"}
	events, err := s.Events(t.Context(), fleetUser, ref, 0, 10)
	if err != nil || len(events.Events) != 2 {
		t.Errorf("events are %+v, %v", events, err)
	}
	plan, _, err := s.Resume(t.Context(), fleetUser, ckpt.ResumeRequest{Agent: "a", Run: "main"})
	if err != nil {
		t.Fatal(err)
	}
	var open []string
	for _, o := range plan.UncertainOperations {
		open = append(open, o.Key)
		if strings.Contains(o.Name, "export") {
			t.Errorf("nobody has exported the run: %q", o.Name)
		}
	}
	slices.Sort(open)
	if plan.Claimed || !slices.Equal(open, []string{"ckptsidecar.import", "pay-1"}) {
		t.Fatalf("the plan claims %v, with %q: %+v", plan.Claimed, open, plan.Reasons)
	}
	for _, key := range open {
		_, _, err := s.ResolveOperation(t.Context(), fleetUser, ref, ckpt.OperationResolution{Key: key, Choice: ckpt.ChoiceItDidNot, Reason: "looked"})
		if err != nil {
			t.Fatal(err)
		}
	}
	plan, _, err = s.Resume(t.Context(), fleetUser, ckpt.ResumeRequest{Agent: "a", Run: "main"})
	if err != nil || !plan.Claimed || fleet.TermOf(plan.Epoch) != 1 || plan.Checkpoint == nil || plan.Checkpoint.Seq != 5 {
		t.Fatalf("after a person has decided the plan is %+v, %v", plan, err)
	}
}
