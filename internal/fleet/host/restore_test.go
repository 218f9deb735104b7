package host

import (
	"context"
	"errors"
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
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
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
		erase: s.Erase, waiters: newWaiters(), host: fleet.Host{DB: s.ID, Name: name}, pace: fleet.Pace{Floor: 10 * time.Millisecond, Most: 100 * time.Millisecond}}
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

// TestFleetRestore: a host is lost with its disk, and gets back what the engine
// holds.
func TestFleetRestore(t *testing.T) {
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

	c := configOf(filepath.Join(t.TempDir(), "new.db"), "new", "")
	if _, err := Restore(t.Context(), url, "lost", false, c); err == nil || !strings.Contains(err.Error(), "--force") {
		t.Fatalf("a host that is alive may be taken over: %v", err)
	}
	if _, err := Restore(t.Context(), url, "nobody", false, c); err == nil || !strings.Contains(err.Error(), "no host nobody") {
		t.Errorf("a host that nobody knows answers %v", err)
	}
	done, err := Restore(t.Context(), url, "lost", true, c)
	if err != nil {
		t.Fatal(err)
	}
	if done.Agents != 2 || done.Runs != 2 || done.Checkpoints != 5 || len(done.Uncertain) != 2 {
		t.Errorf("the restore answers %+v", done)
	}
	if again, err := Restore(t.Context(), url, "lost", false, c); err != nil || again.Runs != 0 {
		t.Errorf("a restore that was done answers %+v, %v", again, err)
	}
	t.Run("the old host is fenced", func(t *testing.T) {
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
		old.hangUp()
		err := old.once(t.Context())
		if old.note(err); !errors.Is(err, pg.ErrRestored) || old.Problem() == "" {
			t.Errorf("the old host is told %v, and its operator %q", err, old.Problem())
		}
	})
	new := openFleetStore(t, c.Store.Path)
	restoredGoesOn(t, new, newest)
	t.Run("the new host ships it on", func(t *testing.T) {
		next := shipperOf(new, url, "new")
		defer next.hangUp()
		if err := next.once(t.Context()); err != nil {
			t.Fatal(err)
		}
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
	})
	if err := new.Close(); err != nil {
		t.Fatal(err)
	}
	notEmpty(t, url, c)
}

// TestInterruptedRestore: a restore dies after the engine has given the runs to the new host, and the daemon of the new
// host starts before somebody repeats the restore. Nothing is lost.
func TestInterruptedRestore(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	lost := openFleetStore(t, filepath.Join(t.TempDir(), "ckpt.db"))
	work(t, lost)
	shipOnce(t, lost, url, "lost", nil)
	runs := server.Rows("fleet", `SELECT uid FROM fleet_runs ORDER BY uid`)

	c := configOf(filepath.Join(t.TempDir(), "new.db"), "new", "")
	new := openFleetStore(t, c.Store.Path)
	e, err := pg.Dial(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, _, err := e.Register(t.Context(), c.host(new.ID)); err != nil {
		t.Fatal(err)
	}
	if err := e.Give(t.Context(), lost.ID, new.ID); err != nil {
		t.Fatal(err)
	}
	shipOnce(t, new, url, "new", nil)
	if err := saveOne(new, t, "other", `{"begins":"anew"}`); err != nil { // of an agent that was not brought yet
		t.Fatal(err)
	}
	shipOnce(t, new, url, "new", nil)
	if got := server.Rows("fleet", `SELECT uid FROM fleet_runs WHERE run = 'main' ORDER BY uid`); !slices.Equal(got, runs) {
		t.Fatalf("after the start of the daemon the engine has the runs %q, and had %q", got, runs)
	}
	if err := new.Close(); err != nil {
		t.Fatal(err)
	}

	done, err := Restore(t.Context(), url, "lost", false, c)
	if err != nil || done.Runs != 2 || done.Checkpoints != 5 {
		t.Fatalf("the restore again answers %+v, %v", done, err)
	}
	new = openFleetStore(t, c.Store.Path)
	shipOnce(t, new, url, "new", nil)
	if err := saveOne(new, t, "other", `{"n":2}`); err != nil {
		t.Fatal(err)
	}
	shipOnce(t, new, url, "new", nil) // now the agent goes whose runs have joined the one that began anew
	want := []string{"main 1 " + new.ID + " 1", "main 4 " + new.ID + " 1", "other 2 " + new.ID + " 0"}
	if got := server.Rows("fleet", `SELECT run, (SELECT count(*) FROM fleet_checkpoints WHERE run_uid = r.uid), host, term FROM fleet_runs r
		WHERE as_of_n > 0 ORDER BY 1, 2`); !slices.Equal(got, want) {
		t.Errorf("the engine has %q, want %q", got, want)
	}
	if got := server.Rows("fleet", `SELECT count(*) FROM fleet_agents`); got[0] != "2" {
		t.Errorf("the engine has %s agents", got[0])
	}
}

// TestRestoreWithoutAKey: what a restore leaves out for want of a key stays in the engine, and comes when the key is
// there.
func TestRestoreWithoutAKey(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	keys := keyFile(t, "acme")
	lost := openFleetStore(t, filepath.Join(t.TempDir(), "ckpt.db"))
	work(t, lost)
	if err := saveOne(lost, t, "other", `{"n":1}`); err != nil {
		t.Fatal(err)
	}
	shipOnce(t, lost, url, "lost", keysIn(keys))
	runs := server.Rows("fleet", `SELECT uid FROM fleet_runs ORDER BY uid`)

	c := configOf(filepath.Join(t.TempDir(), "new.db"), "new", keysWithout(t, keys, "acme"))
	done, err := Restore(t.Context(), url, "lost", true, c)
	if err != nil || done.Runs != 1 || len(done.Damaged) != 1 || done.Damaged[0].Kind != "agent" || !seal.NoKey(done.Damaged[0].Reason) {
		t.Fatalf("without a key the restore answers %+v, %v", done, err)
	}
	new := openFleetStore(t, c.Store.Path)
	if err := saveOne(new, t, "third", `{"begins":"anew"}`); err != nil { // of the agent that was left out
		t.Fatal(err)
	}
	shipOnce(t, new, url, "new", keysIn(c.KeyFile))
	if got := server.Rows("fleet", `SELECT uid FROM fleet_runs WHERE run <> 'third' ORDER BY uid`); !slices.Equal(got, runs) {
		t.Fatalf("after the start of the daemon the engine has the runs %q, and had %q", got, runs)
	}
	claimant := claimantOf(new, url, "new")
	claimant.keys = keysIn(keys)
	for run, n := range map[string]int{"main": 4, "other": 1} {
		got, err := claimant.Claim(t.Context(), fleetAdmin, fleet.ClaimRequest{Agent: "a", Run: run, Owner: fleetUser.Owner})
		if err != nil || got.Checkpoints != n {
			t.Errorf("with the key the claim of %s answers %+v, %v", run, got, err)
		}
		shipOnce(t, new, url, "new", keysIn(keys))
	}
	if got := server.Rows("fleet", `SELECT count(*) FROM fleet_runs WHERE as_of_n > 0`); got[0] != "4" {
		t.Errorf("the engine has %s runs that the new host has shipped", got[0])
	}
}

// TestRestoreWithoutAnOlderKey: a restore leaves a run in the engine of which it could bring only a part.
func TestRestoreWithoutAnOlderKey(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	keys, newer := lostWithTwoKeys(t, url)
	const count = `SELECT (SELECT count(*) FROM fleet_checkpoints WHERE run_uid = r.uid), (SELECT count(*) FROM fleet_rows WHERE run_uid = r.uid)
		FROM fleet_runs r WHERE run = 'main' ORDER BY owner`
	had := server.Rows("fleet", count)

	c := configOf(filepath.Join(t.TempDir(), "new.db"), "new", newer)
	done, err := Restore(t.Context(), url, "lost", true, c)
	if err != nil || done.Runs != 1 || done.Checkpoints != 1 {
		t.Fatalf("the restore answers %+v, %v", done, err)
	}
	var left []string
	for _, d := range done.Damaged {
		left = append(left, d.Kind+" "+d.Owner+" "+d.Agent+"/"+d.Run)
	}
	if !slices.Equal(left, []string{"agent uid:1002 a/", "run uid:1001 a/main"}) {
		t.Errorf("the restore has left out %q", left)
	}
	new := openFleetStore(t, c.Store.Path)
	shipOnce(t, new, url, "new", keysIn(c.KeyFile))
	if got := server.Rows("fleet", count); !slices.Equal(got, had) {
		t.Errorf("after the start of the daemon the engine has %q checkpoints and rows, and had %q", got, had)
	}
	claimant := claimantOf(new, url, "new")
	claimant.keys = keysIn(keys)
	got, err := claimant.Claim(t.Context(), fleetAdmin, fleet.ClaimRequest{Agent: "a", Run: "main", Owner: fleetUser.Owner})
	if err != nil || got.Checkpoints != 4 {
		t.Errorf("with the key the claim answers %+v, %v", got, err)
	}
}

// TestRestoreOfAgentsThatStay: with fleet.ship = "policy" on the new host, what a restore has brought of agents that stay
// there goes from the engine. What it has not brought stays.
func TestRestoreOfAgentsThatStay(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	keys, newer := lostWithTwoKeys(t, url)
	c := configOf(filepath.Join(t.TempDir(), "new.db"), "new", newer)
	if done, err := Restore(t.Context(), url, "lost", true, c); err != nil || done.Runs != 1 {
		t.Fatalf("the restore answers %+v, %v", done, err)
	}
	new := openFleetStore(t, c.Store.Path)
	starts := func() {
		t.Helper()
		s := shipperOf(new, url, "new")
		s.choice.ByPolicy, s.keys = true, keysIn(keys)
		defer s.hangUp()
		if err := s.once(t.Context()); err != nil || s.strays {
			t.Fatalf("the daemon settles: %v, %v", !s.strays, err)
		}
	}
	has := func(what string, want ...string) {
		t.Helper()
		if got := server.Rows("fleet", `SELECT r.owner, r.run FROM fleet_runs r JOIN fleet_agents a ON a.uid = r.agent_uid ORDER BY 1, 2`); !slices.Equal(got, want) {
			t.Errorf("%s the engine has %q, want %q", what, got, want)
		}
	}
	starts()
	has("after the restore", "uid:1001 main", "uid:1002 main")
	claimant := claimantOf(new, url, "new")
	claimant.keys = keysIn(keys)
	if done, err := claimant.Claim(t.Context(), fleetAdmin, fleet.ClaimRequest{Agent: "a", Run: "main", Owner: fleetUser.Owner}); err != nil || done.Checkpoints != 4 {
		t.Fatalf("with the key the claim answers %+v, %v", done, err)
	}
	starts()
	has("after the claim", "uid:1002 main")
	if got := server.Rows("fleet", `SELECT DISTINCT owner FROM fleet_agents`); !slices.Equal(got, []string{"uid:1002"}) {
		t.Errorf("the engine has agents of %q", got)
	}
}

// lostWithTwoKeys ships a host named lost, which then gets a second key and ships a change of run main and a run second.
// It returns the key file, and a copy without the first key.
func lostWithTwoKeys(t *testing.T, url string) (keys, newer string) {
	t.Helper()
	keys = keyFile(t)
	first, err := Keys(keys)
	if err != nil {
		t.Fatal(err)
	}
	lost := openFleetStore(t, filepath.Join(t.TempDir(), "ckpt.db"))
	work(t, lost)
	shipOnce(t, lost, url, "lost", keysIn(keys))
	if _, err := AddKey(keys, seal.Everybody, "second", time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, run := range []string{"main", "second"} {
		if err := saveOne(lost, t, run, `{"n":2}`); err != nil {
			t.Fatal(err)
		}
	}
	shipOnce(t, lost, url, "lost", keysIn(keys))
	return keys, keysWithout(t, keys, "* "+first.Keys[0].ID)
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

// notEmpty checks that a database with an agent of its own is refused.
func notEmpty(t *testing.T, url string, c Config) {
	t.Helper()
	c.Store.Path = filepath.Join(t.TempDir(), "busy.db")
	s := openFleetStore(t, c.Store.Path)
	work(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(t.Context(), url, "new", true, c); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("a database with agents answers %v", err)
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
