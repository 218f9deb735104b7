package pg_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pgtest"
)

// oneOfEach puts a row into each table that every version has.
var oneOfEach = []string{
	`INSERT INTO fleet_hosts (db, name, version, schema, incarnation, registered_at) VALUES ('db1', 'old', 'x', 6, 1, clock_timestamp())`,
	`INSERT INTO fleet_marks (db, mark_n, mark_hash, beats, seen_at) VALUES ('db1', 7, 'hash7', 1, clock_timestamp())`,
	`INSERT INTO fleet_agents (uid, host, owner, agent, v, doc) VALUES ('agent-a', 'db1', 'uid:1', 'a', 2, '{}')`,
	`INSERT INTO fleet_runs (uid, agent_uid, host, owner, agent, run, term, as_of_n, status, updated_at, seq, v, doc)
		VALUES ('run-a', 'agent-a', 'db1', 'uid:1', 'a', 'main', 0, 7, 'running', '2026', 1, 2, '{}')`,
	`INSERT INTO fleet_checkpoints (run_uid, db, n, term, id, seq, kind, suspect, sha, size, pieces, body, v, doc)
		VALUES ('run-a', 'db1', 7, 0, 'c7', 1, 'routine', 0, 'x', 3, '[[1,0,3]]', NULL, 2, '{}')`,
	`INSERT INTO fleet_segments (run_uid, db, id, size, data) VALUES ('run-a', 'db1', 1, 3, 'abc')`,
	`INSERT INTO fleet_rows (run_uid, kind, key, ord, v, doc) VALUES ('run-a', 'step', 'k', 1, 2, '{}')`,
	`INSERT INTO fleet_audit (db, n, at, who, action, owner, agent, run, outcome, v, doc, texts, hash)
		VALUES ('db1', 7, 7, 'uid:1', 'save', 'uid:1', 'a', 'main', 'done', 4, '{}', '{}', 'hash7')`,
}

const columnsOf = `SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 2`

// TestVersions is T9: it migrates the engine of each former version, which
// testdata holds, and lets daemons of that version continue beside daemons of
// this version.
func TestVersions(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t)
	migrated(t, s.Database("fresh"))
	want := s.Rows("fresh", columnsOf)
	for v := 1; v < pg.SchemaVersion; v++ {
		t.Run(fmt.Sprint("version ", v), func(t *testing.T) {
			text, err := os.ReadFile(fmt.Sprintf("testdata/v%d.sql", v))
			if err != nil {
				t.Fatal(err)
			}
			schema, sends, is := strings.Cut(string(text), "-- what its daemons send\n")
			if !is {
				t.Fatal("testdata does not say what the daemons of this version send")
			}
			database := fmt.Sprint("v", v)
			url := s.Database(database)
			for _, statement := range append(statements(schema), oneOfEach...) {
				s.Exec(database, statement)
			}
			s.Exec(database, fmt.Sprintf(`INSERT INTO fleet_meta (key, value) VALUES ('engine_id', 'old'), ('schema', '%d'), ('min_reader', '1')`, v))
			e := dial(t, url)
			if _, _, err := e.Register(t.Context(), host("db2")); err == nil || !strings.Contains(err.Error(), "fleet migrate") {
				t.Errorf("a daemon of this version is told %v", err)
			}
			if from, err := e.Migrate(t.Context(), "new"); err != nil || from != v {
				t.Fatalf("migrating answers %d, %v", from, err)
			}
			if got := s.Rows(database, columnsOf); !slices.Equal(got, want) {
				t.Errorf("the tables are not as new ones:\n%s\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if got := s.Rows(database, `SELECT value FROM fleet_meta ORDER BY key`); !slices.Equal(got, []string{"old", "1", fmt.Sprint(pg.SchemaVersion)}) {
				t.Errorf("fleet_meta has %q", got)
			}
			goOn(t, url, statements(sends))
			e = dial(t, url)
			if m := register(t, e, "db1"); m.N != 7 {
				t.Errorf("the mark of a host that was there is %v", m)
			}
			c := batch(7, 8)
			c.From.Hash = "hash7"
			if fenced := ship(t, e, "db1", c); len(fenced) != 0 {
				t.Errorf("the host is fenced from %q", fenced)
			}
			if got := s.Rows(database, `SELECT count(*) FROM fleet_checkpoints`); got[0] != "2" {
				t.Errorf("there are %s checkpoints", got[0])
			}
		})
	}
}

func statements(text string) (list []string) {
	for _, statement := range strings.Split(text, ";\n") {
		if strings.TrimSpace(statement) != "" {
			list = append(list, statement)
		}
	}
	return list
}

// goOn asks the engine whether the statements of a former version are still
// valid.
func goOn(t *testing.T, url string, list []string) {
	t.Helper()
	if len(list) < 30 {
		t.Errorf("only %d statements are kept", len(list))
	}
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	for i, statement := range list {
		if _, err := c.Prepare(t.Context(), fmt.Sprint("s", i), statement); err != nil {
			t.Errorf("a former daemon sends %s, and is told %v", statement, err)
		}
	}
}
