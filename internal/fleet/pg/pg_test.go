package pg_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pgtest"
)

// dial connects to a migrated engine.
func dial(t *testing.T, url string) *pg.Engine {
	t.Helper()
	e, err := pg.Dial(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func migrated(t *testing.T, url string) *pg.Engine {
	t.Helper()
	e := dial(t, url)
	if _, err := e.Migrate(t.Context(), "engine-1"); err != nil {
		t.Fatal(err)
	}
	return e
}

// batch is a batch of one run with a checkpoint.
func batch(from, to int64) *fleet.Changes {
	mark := func(n int64) fleet.Mark {
		if n == 0 {
			return fleet.Mark{}
		}
		return fleet.Mark{N: n, Hash: fmt.Sprint("hash", n)}
	}
	texts := `{"reason":"told"}`
	c := &fleet.Changes{From: mark(from), To: mark(to), Head: to}
	for n := from + 1; n <= to; n++ {
		c.Journal = append(c.Journal, fleet.JournalRow{N: n, At: n, Who: "uid:1", Action: "save", Owner: "uid:1", Agent: "a", Run: "main", Outcome: "done", Doc: "{}",
			Texts: &texts, Hash: fmt.Sprint("hash", n)})
	}
	pieces := `[[1,0,3]]`
	c.Agents = []fleet.Agent{{UID: "agent-a", Owner: "uid:1", Name: "a", Doc: `{"type":"agent"}`}}
	c.Runs = []fleet.Run{{UID: "run-a", AgentUID: "agent-a", Owner: "uid:1", Agent: "a", Name: "main", AsOf: to, Status: "running", UpdatedAt: "2026", Seq: to, Doc: `{}`,
		Checkpoints: []fleet.Checkpoint{{N: to, ID: fmt.Sprint("c", to), Seq: to, Kind: "routine", SHA256: "x", Size: 3, Pieces: &pieces, Doc: "{}"}},
		Pieces:      []fleet.Segment{{ID: 1, Size: 3, Data: []byte("abc")}},
		Rows:        []fleet.Row{{Kind: "step", Key: "k", Order: 1, Doc: `{"a":"\u0000"}`}}}}
	return c
}

func host(db string) fleet.Host {
	return fleet.Host{DB: db, Name: db, Version: "test", Schema: 6}
}

func register(t *testing.T, e *pg.Engine, db string) fleet.Mark {
	t.Helper()
	_, mark, err := e.Register(t.Context(), host(db))
	if err != nil {
		t.Fatal(err)
	}
	return mark
}

func ship(t *testing.T, e *pg.Engine, db string, c *fleet.Changes) []string {
	t.Helper()
	fenced, err := e.Ship(t.Context(), db, c)
	if err != nil {
		t.Fatal(err)
	}
	return fenced
}

// TestEngine ships batches and checks what the engine stores.
func TestEngine(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t)
	e := migrated(t, s.Database("fleet"))
	if from, err := e.Migrate(t.Context(), "engine-2"); err != nil || from != pg.SchemaVersion {
		t.Fatalf("migrating again answers %d, %v", from, err)
	}
	count := func(table string) string { return s.Rows("fleet", `SELECT count(*) FROM `+table)[0] }

	if m := register(t, e, "db1"); m != (fleet.Mark{}) {
		t.Fatalf("a new host has the mark %v", m)
	}
	ship(t, e, "db1", batch(0, 2))
	ship(t, e, "db1", batch(2, 3))
	if m := register(t, e, "db1"); m != (fleet.Mark{N: 3, Hash: "hash3"}) {
		t.Fatalf("the mark is %v", m)
	}
	if count("fleet_checkpoints") != "2" || count("fleet_segments") != "1" || count("fleet_audit") != "3" || count("fleet_rows") != "1" {
		t.Errorf("there are %s checkpoints, %s segments, %s rows of the log, %s others", count("fleet_checkpoints"), count("fleet_segments"), count("fleet_audit"), count("fleet_rows"))
	}

	t.Run("people read it with psql", func(t *testing.T) {
		for view, want := range map[string]string{
			"fleet_audit_hosts": "1", "fleet_audit_agents": "1", "fleet_audit_runs": "1", "fleet_audit_checkpoints": "2", "fleet_audit_log": "3",
			"fleet_audit_claims": "0", "fleet_audit_erasures": "0",
		} {
			if got := count(view); got != want {
				t.Errorf("%s has %s rows, want %s", view, got, want)
			}
		}
	})
	t.Run("the mark is compared", func(t *testing.T) {
		if _, err := e.Ship(t.Context(), "db1", batch(2, 4)); !errors.Is(err, pg.ErrMoved) {
			t.Fatalf("a batch from an old mark answers %v", err)
		}
		if count("fleet_audit") != "3" {
			t.Error("a refused batch has left rows")
		}
	})
	e = dial(t, s.URL("fleet"))
	t.Run("another host is fenced", func(t *testing.T) {
		register(t, e, "db2")
		if fenced := ship(t, e, "db2", batch(0, 5)); len(fenced) != 1 {
			t.Fatalf("fenced are %q", fenced)
		}
		if got := s.Rows("fleet", `SELECT host, as_of_n FROM fleet_runs`); len(got) != 1 || got[0] != "db1 3" {
			t.Errorf("the run is %q", got)
		}
		if count("fleet_checkpoints") != "2" {
			t.Error("a fenced host has stored a checkpoint")
		}
	})
	t.Run("removals", func(t *testing.T) {
		c := batch(3, 4)
		c.Runs[0].Gone, c.Runs[0].Trim, c.Runs[0].Segments = []int64{2, 3}, true, []int64{1}
		ship(t, e, "db1", c)
		if got := s.Rows("fleet", `SELECT n FROM fleet_checkpoints`); len(got) != 1 || got[0] != "4" {
			t.Errorf("left are %q", got)
		}
		c = batch(4, 5)
		c.Runs[0].Whole, c.Runs[0].Live, c.Runs[0].Trim, c.Runs[0].Rows, c.Runs[0].Checkpoints, c.Runs[0].Pieces = true, nil, true, nil, nil, nil
		ship(t, e, "db1", c)
		if count("fleet_checkpoints") != "0" || count("fleet_rows") != "0" || count("fleet_segments") != "0" {
			t.Error("a run as a whole leaves what it has not")
		}
	})
	t.Run("an erasure", func(t *testing.T) {
		ship(t, e, "db1", batch(5, 6))
		c := batch(6, 7)
		c.Agents, c.Runs = nil, nil
		c.Erased = []fleet.Erasure{{N: 7, Owner: "uid:1", Agent: "a"}}
		c.Names = []fleet.Name{{Owner: "uid:1", Agent: "a"}}
		ship(t, e, "db1", c)
		for _, table := range []string{"fleet_agents", "fleet_runs", "fleet_checkpoints", "fleet_segments", "fleet_rows"} {
			if count(table) != "0" {
				t.Errorf("%s still has %s rows", table, count(table))
			}
		}
		if got := s.Rows("fleet", `SELECT n FROM fleet_audit WHERE db = 'db1' AND texts IS NOT NULL`); len(got) != 1 || got[0] != "7" {
			t.Errorf("texts are left in rows %q", got)
		}
	})
	t.Run("hosts", func(t *testing.T) {
		hosts, err := e.Hosts(t.Context(), "db2")
		if err != nil || len(hosts.Hosts) != 2 || !hosts.Hosts[1].This || hosts.Hosts[0].MarkN != 7 {
			t.Errorf("hosts are %+v, %v", hosts, err)
		}
	})
	t.Run("what went may come again", func(t *testing.T) {
		named := func(from int64, agent, run string) *fleet.Changes {
			c := batch(from, from+1)
			c.Names = []fleet.Name{{Owner: "uid:1", Agent: "a", UID: agent}, {Owner: "uid:1", Agent: "a", Run: "main", UID: run}}
			return c
		}
		ship(t, e, "db1", named(7, "agent-a", "run-a"))
		gone := named(8, "", "")
		gone.Agents, gone.Runs = nil, nil
		ship(t, e, "db1", gone)
		if fenced := ship(t, e, "db1", named(9, "agent-a", "run-a")); len(fenced) != 0 || count("fleet_agents") != "1" || count("fleet_runs") != "1" {
			t.Errorf("there are %s agents and %s runs, fenced are %q", count("fleet_agents"), count("fleet_runs"), fenced)
		}
	})
}

// TestCheck: Check says what is wrong with an engine.
func TestCheck(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t)
	url := s.Database("fleet")
	e := dial(t, url)
	check := func(e *pg.Engine) *fleet.Report {
		t.Helper()
		r, err := e.Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := check(e); r.Good() || !strings.Contains(r.Problems[0], "fleet migrate") {
		t.Errorf("an empty database is %+v", r)
	}
	migrated(t, url)
	r := check(e)
	if !r.Good() || r.Schema != pg.SchemaVersion || r.EngineID != "engine-1" || r.Profile != fleet.ProfilePostgres {
		t.Errorf("the engine is %+v", r)
	}
	if may, _ := r.Durable(false); may || r.Replicated {
		t.Error("an engine without a standby answers for fleet durability")
	}

	s.Exec("fleet", `CREATE ROLE host LOGIN`)
	s.Exec("fleet", `GRANT SELECT ON fleet_meta TO host`)
	poor := dial(t, strings.Replace(url, "postgres@", "host@", 1))
	if r := check(poor); r.Good() || len(r.Rights) < 10 {
		t.Errorf("a role without rights is %+v", r)
	}
	if _, err := poor.Migrate(t.Context(), "x"); err == nil {
		t.Error("a role without rights may migrate")
	}

	s.Exec("fleet", `UPDATE fleet_meta SET value = '99' WHERE key IN ('schema', 'min_reader')`)
	if r := check(e); r.Good() {
		t.Error("tables of a later program fit")
	}
	if _, _, err := e.Register(t.Context(), fleet.Host{DB: "x"}); !errors.Is(err, pg.ErrSchema) {
		t.Errorf("registering with tables of a later program answers %v", err)
	}
	if _, err := e.Migrate(t.Context(), "x"); !errors.Is(err, pg.ErrSchema) {
		t.Errorf("migrating tables of a later program answers %v", err)
	}
}

// TestErrorsShowNoPassword: no error about a faulty URL shows its password.
func TestErrorsShowNoPassword(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"postgres://u:canary@127.0.0.1:1/d", "postgres://u:canary@[::1", "http://u:canary@[::1]/", "postgres://u:canary%zz@[::1]/", "postgres://u:canary@[::1]/?sslmode=sometimes"} {
		_, err := pg.Dial(t.Context(), url)
		if err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q gives the error %v", url, err)
		}
	}
}

// TestCanceledWait is T4: a commit whose wait for the standby was canceled does not count as done. PostgreSQL
// reports it as done, with only a warning.
func TestCanceledWait(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t)
	url := s.Database("fleet")
	e := migrated(t, url)
	register(t, e, "db1")
	standby := s.Standby()
	if r, err := e.Check(t.Context()); err != nil || !r.Replicated {
		t.Fatalf("with a standby the engine is %+v, %v", r, err)
	}
	ship(t, e, "db1", batch(0, 1))
	standby.Stop()

	answer := make(chan error, 1)
	go func() { _, err := e.Ship(t.Context(), "db1", batch(1, 2)); answer <- err }()
	s.Wait("the batch waits for the standby", `SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'ckptsidecar'`)
	select {
	case err := <-answer:
		t.Fatalf("without its standby the engine answers %v", err)
	default:
	}
	s.Rows("postgres", `SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'ckptsidecar'`)
	select {
	case err := <-answer:
		if !pg.IsUnknown(err) {
			t.Fatalf("a canceled wait answers %v", err)
		}
	case <-time.After(5 * time.Minute):
		t.Fatal("a canceled wait answers nothing")
	}
	standby.Again()
	if m := register(t, e, "db1"); m.N != 2 {
		t.Errorf("the mark is %v: the commit was local, and the standby has it by now", m)
	}
	ship(t, e, "db1", batch(2, 3))
}

// TestEveryAnswerWaitsForTheStandby: every request writes something, even if nothing has changed. PostgreSQL would
// answer a transaction that wrote nothing without waiting for the standby.
func TestEveryAnswerWaitsForTheStandby(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t)
	e := migrated(t, s.Database("fleet"))
	standby := s.Standby()
	register(t, e, "db1")
	incarnation, err := e.BeginLease(t.Context(), "db1", 10*time.Second, true, 0)
	if err != nil {
		t.Fatal(err)
	}
	standby.Stop()
	for what, ask := range map[string]func(context.Context, *pg.Engine) error{
		"a beat": func(ctx context.Context, e *pg.Engine) error { return e.Beat(ctx, "db1") },
		"a renewal": func(ctx context.Context, e *pg.Engine) error {
			_, err := e.Renew(ctx, "db1", incarnation, 10*time.Second)
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := ask(ctx, dial(t, s.URL("fleet"))); !pg.IsUnknown(err) {
			t.Errorf("%s without the standby answers %v", what, err)
		}
		cancel()
	}
}
