package pg_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pgtest"
)

// TestClaim claims a run of another host: a host that the engine still hears of keeps its runs, one of two
// claimants gets the run, and what the former owner still ships is refused.
func TestClaim(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t)
	old := migrated(t, s.Database("fleet"))
	register(t, old, "db1")
	ship(t, old, "db1", batch(0, 2))
	find := func(e *pg.Engine) *fleet.Claimable {
		t.Helper()
		all, err := e.Find(t.Context(), fleet.ClaimRequest{Agent: "a", Host: "db1"})
		if err != nil || len(all) != 1 {
			t.Fatalf("found %+v, %v", all, err)
		}
		return &all[0]
	}
	names := []string{"db2", "db3"}
	claimants := map[string]*pg.Engine{}
	for _, name := range names {
		claimants[name] = dial(t, s.URL("fleet"))
		register(t, claimants[name], name)
	}

	seen := find(claimants["db2"])
	if seen.Owner != "uid:1" || seen.Run != "main" || seen.Term != 0 || seen.AgentDoc == "" || seen.Doc == "" {
		t.Errorf("the run is found as %+v", seen)
	}
	ship(t, old, "db1", batch(2, 3))
	e := dial(t, s.URL("fleet"))
	if _, err := e.Claim(t.Context(), fleet.Claim{Run: seen, To: "db2", By: "uid:0", Ground: fleet.GroundSilent}); !errors.Is(err, pg.ErrTaken) {
		t.Fatalf("a run whose owner was heard of since is claimed: %v", err)
	}
	if got := s.Rows("fleet", `SELECT count(*) FROM fleet_claims`); got[0] != "0" {
		t.Errorf("a claim that was refused leaves %s rows", got[0])
	}

	seen = find(claimants["db2"])
	var wg sync.WaitGroup
	errs := make([]error, len(names))
	for i, name := range names {
		wg.Go(func() {
			_, errs[i] = claimants[name].Claim(t.Context(), fleet.Claim{Run: seen, To: name, By: "uid:0", Ground: fleet.GroundSilent})
		})
	}
	wg.Wait()
	winner := slices.Index(errs, nil)
	if winner < 0 || !errors.Is(errs[1-winner], pg.ErrTaken) {
		t.Fatalf("two claimants are answered %v", errs)
	}
	if got := s.Rows("fleet", `SELECT host, term, as_of_n FROM fleet_runs`); !slices.Equal(got, []string{names[winner] + " 1 0"}) {
		t.Errorf("the run is %q", got)
	}
	want := "1 db1 " + names[winner] + " claimed 3 uid:0"
	if got := s.Rows("fleet", `SELECT term, from_db, to_db, how, from_n, claimed_by FROM fleet_claims`); !slices.Equal(got, []string{want}) {
		t.Errorf("the claims are %q, want %q", got, want)
	}

	if fenced := ship(t, old, "db1", batch(3, 4)); len(fenced) != 1 {
		t.Errorf("what the former owner ships is taken: %q", fenced)
	}
	taken, err := old.Taken(t.Context(), "db1")
	if err != nil || len(taken) != 1 || taken[0].UID != "run-a" || taken[0].From != 3 || taken[0].Term != 1 || taken[0].To != names[winner] || taken[0].Host != names[winner] {
		t.Fatalf("the former owner is told %+v, %v", taken, err)
	}
}

// TestClaimBehindASilentOwner is part of T6: an owner that falls silent inside its transaction holds the lock on
// its mark. Its session ends after 1.5 s, and then the claim succeeds.
func TestClaimBehindASilentOwner(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t)
	old := migrated(t, s.Database("fleet"))
	register(t, old, "db1")
	ship(t, old, "db1", batch(0, 2))
	e := dial(t, s.URL("fleet"))
	register(t, e, "db2")
	all, err := e.Find(t.Context(), fleet.ClaimRequest{Agent: "a"})
	if err != nil || len(all) != 1 {
		t.Fatalf("found %+v, %v", all, err)
	}
	if err := old.FallSilent(t.Context(), "db1"); err != nil {
		t.Fatal(err)
	}
	for { // the claimant's own wait for a lock can end first; it asks again then
		_, err = e.Claim(t.Context(), fleet.Claim{Run: &all[0], To: "db2", By: "uid:0", Ground: fleet.GroundSilent})
		if err == nil {
			break
		}
		if t.Context().Err() != nil || errors.Is(err, pg.ErrTaken) {
			t.Fatal(err)
		}
		t.Log("not yet:", err)
		e = dial(t, s.URL("fleet"))
	}
	if got := s.Rows("fleet", `SELECT host, term FROM fleet_runs`); !slices.Equal(got, []string{"db2 1"}) {
		t.Errorf("the run is %q", got)
	}
}

// TestGroundsAreTheEngines: a claim succeeds only if the engine itself finds that its ground is true, whatever the
// claimant has seen.
func TestGroundsAreTheEngines(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t)
	old := migrated(t, s.Database("fleet"))
	register(t, old, "db1")
	ship(t, old, "db1", batch(0, 2))
	const grace = 5 * time.Second
	for _, c := range []struct {
		set    string // what the engine stores about the owner
		ground fleet.Ground
		may    bool
	}{
		{`lease_until = clock_timestamp() + interval '10 seconds'`, fleet.GroundLease, false},
		{`lease_until = clock_timestamp() - interval '4 seconds'`, fleet.GroundLease, false},
		{`lease_until = clock_timestamp() - interval '4 seconds'`, fleet.GroundSilent, false},
		{`lease_until = clock_timestamp() - interval '4 seconds'`, fleet.GroundReleased, false},
		{`lease_until = clock_timestamp() - interval '4 seconds'`, fleet.GroundDrained, false},
		{`lease_until = clock_timestamp() - interval '6 seconds'`, fleet.GroundLease, true},
		{`lease_until = clock_timestamp() + interval '1 hour', drained = 1`, fleet.GroundDrained, true},
		{`lease_until = clock_timestamp() + interval '1 hour', drained = NULL`, fleet.GroundForced, true},
	} {
		s.Exec("fleet", `UPDATE fleet_hosts SET `+c.set+` WHERE db = 'db1'`)
		e := dial(t, s.URL("fleet"))
		register(t, e, "db2")
		all, err := e.Find(t.Context(), fleet.ClaimRequest{Agent: "a"})
		if err != nil || len(all) != 1 {
			t.Fatalf("found %+v, %v", all, err)
		}
		term, err := e.Claim(t.Context(), fleet.Claim{Run: &all[0], To: "db2", By: "uid:0", Ground: c.ground, Grace: grace})
		if c.may != (err == nil) || !c.may && !errors.Is(err, pg.ErrTaken) {
			t.Errorf("with %s, a claim on the ground %s answers %d, %v", c.set, c.ground, term, err)
		}
		s.Exec("fleet", `UPDATE fleet_runs SET host = 'db1'`)
	}
	s.Exec("fleet", `UPDATE fleet_runs SET released = 1`)
	e := dial(t, s.URL("fleet"))
	register(t, e, "db2")
	all, err := e.Find(t.Context(), fleet.ClaimRequest{Agent: "a"})
	if err != nil || !all[0].Released {
		t.Fatalf("found %+v, %v", all, err)
	}
	if _, err := e.Claim(t.Context(), fleet.Claim{Run: &all[0], To: "db2", By: "uid:0", Ground: fleet.GroundReleased}); err != nil {
		t.Errorf("a released run: %v", err)
	}
	if got := s.Rows("fleet", `SELECT how, from_hash <> '' FROM fleet_claims ORDER BY term DESC LIMIT 1`); got[0] != "released true" {
		t.Errorf("the claim is noted as %q", got)
	}
}

// TestWhoeverWasGivenARunLast: the engine no longer has a run. The host that was given the run last may ship it
// again. All other hosts are told that it is not theirs, and must not ship it.
func TestWhoeverWasGivenARunLast(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t)
	e := migrated(t, s.Database("fleet"))
	names := []string{"db1", "db2", "db3"}
	for _, db := range names {
		register(t, e, db)
	}
	claimed := func(term, from, to string) string {
		return `INSERT INTO fleet_claims (run_uid, term, from_db, to_db, at, how, from_n) VALUES ('run-a', ` + term + `, '` + from + `', '` + to +
			`', clock_timestamp(), 'claimed', 1)`
	}
	for _, c := range []struct {
		what string
		set  []string
		term map[string]int64 // the terms that the hosts have; zero if not listed
		may  []string
		told map[string]string // the owner that each database is told
	}{
		{"no claim", nil, nil, names, nil},
		{"claimed once", []string{claimed("1", "db1", "db2")}, map[string]int64{"db2": 1}, []string{"db2"}, map[string]string{"db1": "db2"}},
		{"and back", []string{claimed("1", "db1", "db2"), claimed("2", "db2", "db1")}, map[string]int64{"db1": 2, "db2": 1}, []string{"db1"},
			map[string]string{"db2": "db1"}},
		{"and on", []string{claimed("1", "db1", "db2"), claimed("2", "db2", "db1"), claimed("3", "db1", "db3")},
			map[string]int64{"db1": 2, "db2": 1, "db3": 3}, []string{"db3"}, map[string]string{"db1": "db3", "db2": "db1"}},
	} {
		s.Exec("fleet", `DELETE FROM fleet_claims`)
		for _, statement := range c.set {
			s.Exec("fleet", statement)
		}
		for _, db := range names {
			taken, err := e.Taken(t.Context(), db)
			if err != nil {
				t.Fatal(err)
			}
			host := ""
			if len(taken) == 1 {
				host = taken[0].Host
			}
			if len(taken) > 1 || host != c.told[db] {
				t.Errorf("%s: %s is told %+v, want host %q", c.what, db, taken, c.told[db])
			}
			s.Exec("fleet", `UPDATE fleet_marks SET mark_n = 0, mark_hash = ''`)
			s.Exec("fleet", `DELETE FROM fleet_audit`)
			fresh := dial(t, s.URL("fleet")) // a new connection remembers nothing
			register(t, fresh, db)
			changes := batch(0, 1)
			changes.Runs[0].Term = c.term[db]
			may := len(ship(t, fresh, db, changes)) == 0
			if may != slices.Contains(c.may, db) || !may && s.Rows("fleet", `SELECT count(*) FROM fleet_runs`)[0] != "0" {
				t.Errorf("%s: %s may ship the run: %t", c.what, db, may)
			}
			s.Exec("fleet", `DELETE FROM fleet_runs`)
		}
	}
}
