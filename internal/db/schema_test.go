package db

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/audit"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

// raw opens a file of the test directly, past the store.
func raw(t *testing.T, path string) *sqlx.DB {
	t.Helper()
	db, err := sqlx.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// dump returns the schema of a database as text. It does not contain views,
// because every version creates them again.
func dump(t *testing.T, db *sqlx.DB, kinds string) string {
	t.Helper()
	var lines []string
	err := db.Select(&lines, `SELECT sql || ';' FROM sqlite_schema WHERE sql IS NOT NULL AND instr(?, type) ORDER BY type = 'trigger', type = 'index', type = 'view', name`, kinds)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n\n") + "\n"
}

const everything = "table index trigger view"

func openAt(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(t.Context(), Options{Path: path, Retention: retention.Plan})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestSchemaIsIdempotent runs the schema again on a database in use: nothing
// changes, and nothing is lost.
func TestSchemaIsIdempotent(t *testing.T) {
	t.Parallel()
	s := openAt(t, filepath.Join(t.TempDir(), "ckpt.db"))
	sc := ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:1"}}
	if _, err := s.Save(t.Context(), sc, &ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRoutine, State: []byte(`1`)}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db := raw(t, s.Opt.Path)
	before := dump(t, db, everything)
	for range 2 {
		db.MustExec(ckpt.Schema)
	}
	if diff := cmp.Diff(before, dump(t, db, everything)); diff != "" {
		t.Errorf("the schema is another the second time:\n%s", diff)
	}
	var n int
	if err := db.Get(&n, `SELECT count(*) FROM checkpoints`); err != nil || n != 1 {
		t.Errorf("%d checkpoints, %v", n, err)
	}
}

// TestMigrateFromNothing: if the process died after only a part of a new
// database was made (the file, or its format), the next start makes the same
// database.
func TestMigrateFromNothing(t *testing.T) {
	t.Parallel()
	fresh := openAt(t, filepath.Join(t.TempDir(), "ckpt.db"))
	for name, begin := range map[string]func(path string){
		"an empty file": func(path string) {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"only the format": func(path string) {
			db := raw(t, path)
			db.MustExec(`PRAGMA page_size = 4096`)
			db.MustExec(`PRAGMA auto_vacuum = 2`)
			db.MustExec(`PRAGMA journal_mode = WAL`)
			_ = db.Close()
		},
	} {
		path := filepath.Join(t.TempDir(), "ckpt.db")
		begin(path)
		s := openAt(t, path)
		if diff := cmp.Diff(dump(t, fresh.RO, everything), dump(t, s.RO, everything)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// numbered holds the numbers and uids that the database has for an agent and a
// run.
type numbered struct {
	Agent, Run       int64
	AgentUID, RunUID string
}

func numbersOf(t *testing.T, db *sqlx.DB, agent string) (n numbered) {
	t.Helper()
	err := db.QueryRow(`SELECT a.id, r.id, a.uid, r.uid FROM agents a JOIN runs r ON r.agent_id = a.id WHERE a.name = ? ORDER BY r.id DESC`, agent).Scan(&n.Agent, &n.Run, &n.AgentUID, &n.RunUID)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestNumbersAreNeverUsedAgain erases an agent, deletes a run, and creates both
// again. They get new numbers and uids, even after a restart.
func TestNumbersAreNeverUsedAgain(t *testing.T) {
	t.Parallel()
	s := openAt(t, filepath.Join(t.TempDir(), "ckpt.db"))
	sc := ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:1"}}
	var all []numbered
	save := func(run string) {
		t.Helper()
		if _, err := s.Save(t.Context(), sc, &ckpt.SaveRequest{Agent: "a", Run: run, Kind: ckpt.KindRoutine, State: []byte(`1`)}); err != nil {
			t.Fatal(err)
		}
		all = append(all, numbersOf(t, s.RO, "a"))
	}
	save("r")
	if _, _, err := s.EndRun(t.Context(), sc, ckpt.RunRef{Agent: "a", Run: "r"}, ckpt.EndRequest{Status: ckpt.RunCompleted}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.DeleteRun(t.Context(), sc, ckpt.RunRef{Agent: "a", Run: "r"}, false); err != nil {
		t.Fatal(err)
	}
	save("r")
	if _, err := s.Erase(t.Context(), sc, "a"); err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	s = openAt(t, s.Opt.Path)
	save("r")
	for i := 1; i < len(all); i++ {
		if all[i].Run <= all[i-1].Run || all[i].RunUID == all[i-1].RunUID {
			t.Errorf("%+v after %+v", all[i], all[i-1])
		}
	}
	if last := all[2]; last.Agent <= all[1].Agent || last.AgentUID == all[1].AgentUID || all[0].AgentUID != all[1].AgentUID {
		t.Errorf("%+v", all)
	}
	for _, n := range all {
		for _, uid := range []string{n.AgentUID, n.RunUID} {
			if id, err := uuid.Parse(uid); err != nil || id.Version() != 7 || id.Variant() != uuid.RFC4122 || time.Since(time.Unix(id.Time().UnixTime())).Abs() > time.Hour {
				t.Errorf("%s is no UUID of version 7 of now: %v", uid, err)
			}
		}
	}
	for _, refused := range []string{
		`INSERT INTO runs (id, agent_id, name, started_at, updated_at) VALUES (1, 2, 'x', '', '')`,
		`INSERT INTO agents (id, owner, name, created_at, policy_at) VALUES (1, 'x', 'x', '', '')`,
		`UPDATE runs SET uid = 'x'`, `UPDATE agents SET uid = 'x'`,
	} {
		if _, err := raw(t, s.Opt.Path).Exec(refused); err == nil {
			t.Errorf("%s was taken", refused)
		}
	}
}

// TestSegmentsAreNumberedBySaves: a segment gets the number of its save's row in the audit log.
func TestSegmentsAreNumberedBySaves(t *testing.T) {
	t.Parallel()
	s := openAt(t, filepath.Join(t.TempDir(), "ckpt.db"))
	sc := ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:7"}}
	for i := range 6 {
		state := make([]byte, 20_000)
		_, _ = rand.Read(state)
		saved, err := s.Save(t.Context(), sc, &ckpt.SaveRequest{Agent: "new", Kind: ckpt.KindRoutine, State: state})
		if err != nil {
			t.Fatal(err)
		}
		var id, n int64
		if err := s.RO.QueryRow(`SELECT (SELECT max(id) FROM segments), n FROM checkpoints WHERE id = ?`, saved.ID).Scan(&id, &n); err != nil || id != n {
			t.Errorf("save %d: segment %d of row %d: %v", i, id, n, err)
		}
	}
}

// TestTheFileKeepsItsFingerprint: a new file has the fingerprint of the schema that made it, and a
// file with another one is refused by the daemon and by verify.
func TestTheFileKeepsItsFingerprint(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	_ = openAt(t, path).Close()
	db := raw(t, path)
	var print string
	if err := db.Get(&print, `SELECT value FROM meta WHERE key = 'schema'`); err != nil || print != ckpt.SchemaFingerprint() || len(print) != 64 {
		t.Fatalf("%q, %v", print, err)
	}
	db.MustExec(`UPDATE meta SET value = 'another' WHERE key = 'schema'`)
	_ = db.Close()
	_, opened := Open(t.Context(), Options{Path: path, Retention: retention.Plan})
	_, verified := audit.Verify(t.Context(), path, nil)
	_, archived := audit.Archive(t.Context(), path, t.TempDir(), time.Now(), time.Now().Add(-10*24*time.Hour), nil)
	for _, err := range []error{opened, verified, archived} {
		var operator *OperatorError
		if !errors.As(err, &operator) || !strings.Contains(err.Error(), "made by an unreleased version of ckptsidecar") {
			t.Errorf("%v", err)
		}
	}
}
