package db

import (
	"compress/gzip"
	"crypto/rand"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/audit"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

var update = flag.Bool("update", false, "write the golden files anew")

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

// unspaced returns a schema without comments and spacing, because ALTER TABLE
// writes the columns that it adds in its own form.
func unspaced(schema string) string {
	lines := strings.Split(schema, "\n")
	for i, line := range lines {
		lines[i], _, _ = strings.Cut(line, "--")
	}
	text := strings.ReplaceAll(strings.Join(strings.Fields(strings.Join(lines, " ")), " "), " ,", ",")
	return strings.NewReplacer(", ", ",\n", " )", ")", "( ", "(", "; ", ";\n").Replace(text)
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

// TestGoldenSchemas builds each released schema from its golden file, lets Open
// migrate it, and compares it with a new database. -update writes the file of
// the present version. After the release of a version, its file must never
// change.
func TestGoldenSchemas(t *testing.T) {
	t.Parallel()
	fresh := openAt(t, filepath.Join(t.TempDir(), "ckpt.db"))
	if *update {
		golden := "-- The tables of schema version " + strconv.Itoa(ckpt.SchemaVersion) + ", as they were released.\n\n" + dump(t, fresh.RO, "table index trigger")
		if err := os.MkdirAll("testdata/schema", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("testdata/schema/v"+strconv.Itoa(ckpt.SchemaVersion)+".sql", []byte(golden), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for version := 1; version <= ckpt.SchemaVersion; version++ {
		s := openAt(t, releasedAs(t, version))
		if diff := cmp.Diff(unspaced(dump(t, fresh.RO, "table index trigger")), unspaced(dump(t, s.RO, "table index trigger"))); diff != "" {
			t.Errorf("version %d becomes another schema than a new database has:\n%s", version, diff)
		}
	}
}

// releasedAs makes an empty database of a released version.
func releasedAs(t *testing.T, version int, more ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	db := raw(t, path)
	golden, err := os.ReadFile("testdata/schema/v" + strconv.Itoa(version) + ".sql")
	if err != nil {
		t.Fatalf("a released schema has no golden file (make it with -update): %v", err)
	}
	statements := []string{
		`PRAGMA page_size = 8192`, `PRAGMA auto_vacuum = 2`, `PRAGMA journal_mode = WAL`, string(golden),
		`PRAGMA application_id = ` + strconv.Itoa(ckpt.ApplicationID), `PRAGMA user_version = ` + strconv.Itoa(version),
		`INSERT INTO audit_head (id, n, hash) VALUES (1, 0, '')`, `INSERT INTO meta VALUES ('database_id', 'x'), ('chain_key', 'y')`,
	}
	for _, statement := range append(statements, more...) {
		db.MustExec(statement)
	}
	_ = db.Close()
	return path
}

// TestStepsOfVersion1 reads steps that were written before steps had turns.
func TestStepsOfVersion1(t *testing.T) {
	t.Parallel()
	path := releasedAs(t, 1,
		`INSERT INTO agents (id, owner, name, created_at, policy_at) VALUES (1, 'uid:1', 'a', '2026-11-01T00:00:00.000Z', '2026-11-01T00:00:00.000Z')`,
		`INSERT INTO runs (id, agent_id, name, started_at, updated_at, steps_ended) VALUES (1, 1, 'main', '2026-11-01T00:00:00.000Z', '2026-11-01T00:00:00.000Z', 1)`,
		`INSERT INTO steps (run_id, key, name, status, args, result, started_at, ended_at, stretch, sig, res)
			VALUES (1, 'k1', 'search', 'succeeded', '{"q":1}', '"none"', '2026-11-01T00:00:00.000Z', '2026-11-01T00:00:01.000Z', 1, 'ab', 'cd')`)
	s := openAt(t, path)
	sc := ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:1"}}
	ref := ckpt.RunRef{Agent: "a"}
	_, _, err := s.BeginStep(t.Context(), sc, ref, ckpt.StepRequest{Key: "k2", Name: "search", Turn: "msg_1", Status: ckpt.StepFailed, Outcome: ckpt.StepNegative})
	if err != nil {
		t.Fatal(err)
	}
	page, err := s.Steps(t.Context(), sc, ref, ckpt.ListFilter{})
	if err != nil || len(page.Steps) != 2 {
		t.Fatalf("%+v, %v", page, err)
	}
	if old, now := page.Steps[0], page.Steps[1]; old.Turn != "" || old.Outcome != "" || string(old.Result) != `"none"` || now.Turn != "msg_1" || now.Outcome != ckpt.StepNegative {
		t.Errorf("%+v\n%+v", old, now)
	}
	var shown []string
	if err := s.RO.Select(&shown, `SELECT key || ' ' || coalesce(turn, '-') || ' ' || coalesce(outcome, '-') FROM audit_steps ORDER BY key`); err != nil || strings.Join(shown, ", ") != "k1 - -, k2 msg_1 negative" {
		t.Errorf("%q, %v", shown, err)
	}
	copies, err := filepath.Glob(path + ".v1-*")
	if err != nil || len(copies) != 1 {
		t.Fatalf("the database was not copied aside before: %q, %v", copies, err)
	}
	if report, err := audit.Verify(t.Context(), copies[0], nil); err != nil || len(report.Problems) > 0 {
		t.Errorf("the copy of the older version: %+v, %v", report, err)
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

// TestMigrationsAreNamedForVersions finds a file name that stepUp could not
// handle.
func TestMigrationsAreNamedForVersions(t *testing.T) {
	t.Parallel()
	db := raw(t, filepath.Join(t.TempDir(), "x.db"))
	conn, err := db.Connx(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := ledger.StepUp(t.Context(), conn, ckpt.SchemaVersion); err != nil {
		t.Error(err)
	}
}

// stored unpacks a database that an older version has made: see
// testdata/databases/README.md.
func stored(t *testing.T, version int) string {
	t.Helper()
	packed, err := os.Open(filepath.Join("testdata", "databases", "v"+strconv.Itoa(version)+".db.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	unpacked, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	bytes, err := io.ReadAll(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	openAt(t, filepath.Join(t.TempDir(), "other.db")) // chooses the kind of locks before any file is opened
	path := filepath.Join(t.TempDir(), "ckpt.db")
	if err := os.WriteFile(path, bytes, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// shown returns the content of the views, row by row.
func shown(t *testing.T, db *sqlx.DB, upTo int64) []string {
	t.Helper()
	var all []string
	for _, query := range []string{
		`SELECT json_array(n, at, who, pid, action, owner, agent, run, subject, outcome, reason, retries, detail, prev, hash) FROM audit_log WHERE n <= ?1 ORDER BY n`,
		`SELECT json_array(id, owner, agent, run, seq, kind, created_at, size, stored_size, sha256, parent, step, operation, pinned, suspect, labels, metadata) FROM audit_checkpoints WHERE ?1 ORDER BY id`,
		`SELECT json_array(agent, owner, run, key, attempt, name, status, args, result, started_at, ended_at) FROM audit_steps WHERE ?1 ORDER BY agent, run, key`,
		`SELECT json_array(agent, run, key, attempt, name, status, checkpoint) FROM audit_operations WHERE ?1 ORDER BY agent, run, key`,
		`SELECT json_array(agent, run, status, epoch, attempt, goal, checkpoints, stored_bytes) FROM audit_runs WHERE ?1 ORDER BY agent, run`,
		`SELECT json_array(id, thread, ns, checkpoint, parent, channels) FROM audit_graph_checkpoints WHERE ?1 ORDER BY id`,
		`SELECT json_array(rule, severity, message, closed) FROM audit_findings WHERE ?1 ORDER BY id`,
	} {
		var rows []string
		if err := db.Select(&rows, query, upTo); err != nil {
			t.Fatal(err)
		}
		if len(rows) == 0 {
			t.Fatalf("nothing is shown of %s", query)
		}
		all = append(all, rows...)
	}
	return all
}

// TestOldDatabasesAreMigrated opens databases that each released version has
// made, with small states, large ones in pieces, threads of LangGraph, steps,
// operations and keys. All data stays and is shown as before, today's guards
// and rules hold, keys still replay, and saves succeed. The copy that was made
// first is the old database, and verify can still check it.
func TestOldDatabasesAreMigrated(t *testing.T) {
	for version := 1; version < ckpt.SchemaVersion; version++ {
		t.Run("v"+strconv.Itoa(version), func(t *testing.T) {
			t.Parallel()
			path := stored(t, version)
			var head int64
			old := raw(t, path)
			if err := old.Get(&head, `SELECT n FROM audit_head`); err != nil {
				t.Fatal(err)
			}
			before, form := shown(t, old, head), dump(t, old, "table index trigger")
			_ = old.Close()

			s := openAt(t, path)
			if diff := cmp.Diff(before, shown(t, s.RO, head)); diff != "" {
				t.Error(diff)
			}
			if broken, err := ledger.BrokenGuards(t.Context(), s.RO); err != nil || len(broken) > 0 {
				t.Errorf("guards that are missing after the migration: %v %v", broken, err)
			}
			linked(t, s)
			stillReplays(t, s)
			sc := ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:0"}}
			for i := range 4 {
				saved, err := s.Save(t.Context(), sc, &ckpt.SaveRequest{Agent: "large", Run: "r1", Kind: ckpt.KindRoutine, State: make([]byte, 9000+i)})
				if err != nil || saved.Seq != int64(7+i) {
					t.Fatal(saved, err)
				}
			}
			var gone []string
			if err := s.RO.Select(&gone, `SELECT run || ' ' || kind || ' ' || seq || ' ' || reason FROM audit_removals WHERE agent = 'large' ORDER BY seq`); err != nil {
				t.Fatal(err)
			}
			if len(gone) != 6 || gone[0] != gone[5][:11]+"1"+gone[5][12:] {
				t.Errorf("%q", gone)
			}
			copies, err := filepath.Glob(path + ".v" + strconv.Itoa(version) + "-*")
			if err != nil || len(copies) != 1 {
				t.Fatalf("copies: %v %v", copies, err)
			}
			if diff := cmp.Diff(form, dump(t, raw(t, copies[0]), "table index trigger")); diff != "" {
				t.Errorf("the copy has another form than the database had:\n%s", diff)
			}
			checkpoints, trees := int64(14), int64(0)
			if version >= 5 { // and files
				checkpoints, trees = 16, 2
			}
			for _, name := range []string{path, copies[0]} {
				report, err := audit.Verify(t.Context(), name, nil)
				if err != nil || len(report.Problems) > 0 || report.Checkpoints != checkpoints || report.Trees != trees || report.AuditRows < head {
					t.Errorf("%s: %+v %v", name, report, err)
				}
			}
		})
	}
}

// linked checks the chain from end to end, using the view.
func linked(t *testing.T, s *Store) {
	t.Helper()
	var links []ledger.Link
	if err := s.RO.Select(&links, `SELECT n, input, hash FROM audit_chain ORDER BY n`); err != nil {
		t.Fatal(err)
	}
	before := ""
	for i, link := range links {
		if link.N != int64(i+1) || !link.Holds() || !strings.HasSuffix(link.Input, `"`+before+`"]`) {
			t.Fatalf("row %d does not hold: %s", i+1, link.Input)
		}
		before = link.Hash
	}
}

// stillReplays repeats requests that were made before the migration.
func stillReplays(t *testing.T, s *Store) {
	t.Helper()
	sc := ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:0"}}
	again := func(state string) (*ckpt.Saved, error) {
		return s.Save(t.Context(), sc, &ckpt.SaveRequest{Agent: "small", ID: "01a4f0d8-0005-7000-8000-000000000005", Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON,
			State: []byte(state), Labels: ckpt.Labels{"step": "s5"}, Metadata: []byte(`{"m": 5}`)})
	}
	saved, err := again(`{"n": 5}`)
	if err != nil || !saved.Replayed || saved.Seq != 6 || len(saved.Pruned) != 1 || saved.Parent == "" {
		t.Errorf("the id of a save: %+v, %v", saved, err)
	}
	if _, err = again(`{"n": 6}`); ckpt.CodeOf(err) != ckpt.CodeIdempotencyMismatch {
		t.Errorf("another save under its id: %v", err)
	}
	saved, err = s.Save(t.Context(), sc, &ckpt.SaveRequest{Agent: "runner", Run: "r", IdempotencyKey: "k-save", Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: []byte(`{"at": 1}`)})
	if err != nil || !saved.Replayed {
		t.Errorf("the key of a save: %+v, %v", saved, err)
	}
}

// TestDamageDoesNotKeepFromMigrating: a database with a damaged checkpoint can
// be migrated too.
func TestDamageDoesNotKeepFromMigrating(t *testing.T) {
	t.Parallel()
	path := stored(t, 2)
	db := raw(t, path)
	db.MustExec(`DROP TRIGGER checkpoints_are_never_changed`)
	db.MustExec(`UPDATE checkpoints SET body = x'32' WHERE body IS NOT NULL`)
	_ = db.Close()
	s := openAt(t, path)
	sc := ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:0"}}
	if _, err := s.Save(t.Context(), sc, &ckpt.SaveRequest{Agent: "small", Kind: ckpt.KindRoutine, State: []byte(`3`)}); err != nil {
		t.Fatal(err)
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

// TestArchivesOfOldLogs archives rows that each older version has written. The
// archive and the database pass verify, and together they show what the
// database showed.
func TestArchivesOfOldLogs(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	for version := 1; version < ckpt.SchemaVersion; version++ {
		path, folder := stored(t, version), t.TempDir()
		later := time.Now().Add(30 * 24 * time.Hour)
		s, err := Open(t.Context(), Options{Path: path, Retention: retention.Plan, Now: func() time.Time { return later }})
		if err != nil {
			t.Fatal(err)
		}
		told := func(path string) (all map[string]bool) {
			all = map[string]bool{}
			var rows []string
			if err := raw(t, path).Select(&rows, `SELECT json_array(n, at, who, action, owner, agent, run, subject, outcome, reason, detail, prev, hash, removed) FROM audit_log`); err != nil {
				t.Fatal(err)
			}
			for _, row := range rows {
				all[row] = true
			}
			return all
		}
		before := told(path)
		a, err := audit.Archive(t.Context(), path, folder, later, later.Add(-10*24*time.Hour), nil)
		if err != nil || a == nil {
			t.Fatalf("version %d: %+v %v", version, a, err)
		}
		admin := ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:0", Admin: true}}
		done, err := s.ArchiveAudit(t.Context(), admin, *a)
		if err != nil || done.Removed < 10 {
			t.Fatalf("version %d: %+v %v", version, done, err)
		}
		after := told(path)
		for row := range told(filepath.Join(folder, a.Name)) {
			after[row] = true
		}
		for row := range before {
			if !after[row] {
				t.Errorf("version %d: no longer told: %s", version, row)
			}
		}
		if report, err := audit.Verify(t.Context(), path, nil); err != nil || len(report.Problems) > 0 {
			t.Errorf("version %d: %+v %v", version, report, err)
		}
		_ = s.Close()
	}
}

// TestSegmentsAreNumberedBySaves: a segment gets the number of its save's row
// in the audit log, which is higher than all numbers that an older version has
// used.
func TestSegmentsAreNumberedBySaves(t *testing.T) {
	t.Parallel()
	for version := 1; version <= ckpt.SchemaVersion; version++ {
		path, from := filepath.Join(t.TempDir(), "ckpt.db"), int64(0)
		if version < ckpt.SchemaVersion {
			path = stored(t, version)
			largest := `SELECT max(id) FROM segments`
			if version >= 5 { // these versions number segments by their saves
				largest = `SELECT coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'segments_from'), 0)`
			}
			if err := raw(t, path).Get(&from, largest); err != nil || from == 0 && version < 5 {
				t.Fatal(from, err)
			}
		}
		s := openAt(t, path)
		sc := ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:7"}}
		for i := range 6 {
			state := make([]byte, 20_000)
			_, _ = rand.Read(state)
			saved, err := s.Save(t.Context(), sc, &ckpt.SaveRequest{Agent: "new", Kind: ckpt.KindRoutine, State: state})
			if err != nil {
				t.Fatal(err)
			}
			var id, n int64
			if err := s.RO.QueryRow(`SELECT (SELECT max(id) FROM segments), n FROM checkpoints WHERE id = ?`, saved.ID).Scan(&id, &n); err != nil || id != from+n {
				t.Errorf("version %d, save %d: segment %d of row %d, numbers begin after %d: %v", version, i, id, n, from, err)
			}
		}
		_ = s.Close()
	}
}
