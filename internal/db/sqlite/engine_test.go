package sqlite

import (
	"bytes"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// noHooks are those of a store that keeps nothing besides the tables.
var noHooks = Hooks{Examine: func(_ *sqlx.DB, sound func() error) error { return sound() }}

// optionsAt returns options for a database with one table, whose schema has the
// version.
func optionsAt(path string, version int64) Options {
	return Options{Path: path, Hooks: noHooks, Schema: Schema{ApplicationID: 1, Version: version, Fingerprint: fmt.Sprint("f", version),
		Migrate: func(ctx context.Context, conn *sqlx.Conn, _ int64) error {
			_, err := conn.ExecContext(ctx, fmt.Sprintf(`CREATE TABLE IF NOT EXISTS t (x, y);
				CREATE TABLE IF NOT EXISTS meta (key PRIMARY KEY, value); INSERT OR REPLACE INTO meta VALUES ('schema', 'f%d');
				PRAGMA application_id = 1; PRAGMA user_version = %d`, version, version))
			return err
		}}}
}

// openAt opens an engine whose database has one table.
func openAt(t *testing.T, path string) *Engine {
	t.Helper()
	e := openWith(t, optionsAt(path, 1))
	t.Cleanup(func() {
		if left := e.Left(); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	})
	return e
}

// openWith opens and starts an engine, which ends with the test.
func openWith(t *testing.T, o Options) *Engine {
	t.Helper()
	e, err := Open(t.Context(), o)
	if err == nil {
		err = e.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// raw opens a connection that the engine does not know about.
func raw(t *testing.T, path string) *sqlx.DB {
	t.Helper()
	db, err := pool(path, "rwc", 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// coded makes SQLite itself return an error with a result code.
func coded(t *testing.T, statement string) error {
	t.Helper()
	db := raw(t, filepath.Join(t.TempDir(), "x.db"))
	db.MustExec(`CREATE TABLE t (x)`)
	_, err := db.Exec(statement)
	if err == nil {
		t.Fatalf("%s succeeded", statement)
	}
	return err
}

// TestOpenErrors: for each reason why a file cannot be opened, the error says
// what to do.
func TestOpenErrors(t *testing.T) {
	s := &Engine{opt: Options{Path: "/x/ckpt.db"}}
	for _, c := range []struct {
		err  error
		says string
	}{
		{coded(t, `PRAGMA query_only = 1; INSERT INTO t VALUES (1)`), "read-only"},
		{coded(t, `PRAGMA max_page_count = 2; INSERT INTO t VALUES (zeroblob(1000000))`), "full"},
		{coded(t, `ATTACH '/nowhere/x.db' AS y`), "may read and write"},
		{coded(t, `nonsense`), "cannot be opened"},
		{errors.New("else"), "cannot be opened"},
	} {
		err := s.OpenError(c.err)
		var operator *OperatorError
		if !errors.As(err, &operator) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "/x/ckpt.db") {
			t.Errorf("%v became %T: %v", c.err, err, err)
		}
	}
}

// TestExplained: each class of a failed write gets its answer, and the writer
// does not stop if it can continue.
func TestExplained(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "ckpt.db"))
	for statement, want := range map[string]ckpt.Code{
		`PRAGMA query_only = 1; INSERT INTO t VALUES (1)`:                     ckpt.CodeInternal,
		`PRAGMA max_page_count = 2; INSERT INTO t VALUES (zeroblob(1000000))`: ckpt.CodeStorageFull,
		`SELECT zeroblob(2000000000)`:                                         ckpt.CodeConflict,
		`nonsense`:                                                            ckpt.CodeInternal,
	} {
		err := s.writer.explain(coded(t, statement))
		if ckpt.CodeOf(err) != want || ckpt.AsError(err).OutcomeOrDefault() != ckpt.OutcomeNotSaved {
			t.Errorf("%s became %v", statement, err)
		}
	}
	if err := s.writer.failed(); err != nil {
		t.Error(err)
	}
	if err := ReadError(coded(t, `ATTACH '/nowhere/x.db' AS y`)); ckpt.CodeOf(err) != ckpt.CodeInternal {
		t.Error(err)
	}
}

// TestFailedCopies: failures to copy the log are counted and reported, and
// forgotten after the next success.
func TestFailedCopies(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "ckpt.db"))
	side := s.side
	s.side = raw(t, filepath.Join(t.TempDir(), "closed.db"))
	_ = s.side.Close()
	for range 3 {
		s.copyWAL(t.Context())
	}
	if n := s.wal.failures.Load(); n != 3 {
		t.Errorf("%d failures", n)
	}
	s.side = side
	s.copyWAL(t.Context())
	if n := s.wal.failures.Load(); n != 0 {
		t.Errorf("%d failures after a success", n)
	}
}

// TestLogThatCannotBeginAnew: a copy beside the writer may succeed without a
// flush. The writer's own failure counts until the writer has succeeded.
func TestLogThatCannotBeginAnew(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "ckpt.db"))
	for range 3 {
		s.copyWAL(t.Context())
		s.begunAnew(errors.New("a flush failed"))
	}
	s.copyWAL(t.Context())
	if n := s.wal.failures.Load(); n != 3 {
		t.Errorf("%d failures", n)
	}
	if problems := s.RoomProblems(); len(problems) != 1 {
		t.Errorf("%q", problems)
	}
	s.cutWAL(t.Context())
	if n := s.wal.failures.Load(); n != 0 {
		t.Errorf("%d failures after a success", n)
	}
}

// TestFailedCopiesAreBounded: if the log cannot be copied, saves continue until
// the log is too long. Then a fresh process must check.
func TestFailedCopiesAreBounded(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "ckpt.db"))
	s.side = raw(t, filepath.Join(t.TempDir(), "closed.db"))
	_ = s.side.Close()
	for range 2 * copyTries {
		s.copyWAL(t.Context())
	}
	if err := s.Ready(); err != nil {
		t.Errorf("a short log: %v", err)
	}
	s.wal.written.Store(s.wal.copied.Load() + 2*LogAlarm/PageSize)
	s.copyWAL(t.Context())
	select {
	case <-s.Failed():
	default:
		t.Error("a long log that cannot be copied is gone on with")
	}
}

// TestWindowsPaths converts paths to the form that SQLite's URIs need.
func TestWindowsPaths(t *testing.T) {
	for path, want := range map[string]string{`C:\a\b.db`: "/C:/a/b.db", "/a/b.db": "/a/b.db"} {
		if got := slashed(path); got != want {
			t.Errorf("%s became %s", path, got)
		}
	}
}

// TestFilledReserve: if a file system cannot reserve space, the reserve is
// filled with bytes.
func TestFilledReserve(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "reserve"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int64{100_000, 300_001} {
		info, err := f.Stat()
		if err == nil {
			err = fill(f, info.Size(), size)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(f.Name())
	if err != nil || len(b) != 300_001 {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	var packed bytes.Buffer
	w := zlib.NewWriter(&packed)
	_, _ = w.Write(b)
	if err := w.Close(); err != nil || packed.Len() < len(b) {
		t.Errorf("%d bytes are packed into %d, %v", len(b), packed.Len(), err)
	}
}

// TestRoomProblems: each problem is described in words, the most serious first.
func TestRoomProblems(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "x.db"))
	s.wal.written.Store(s.wal.copied.Load() + 2*LogAlarm/PageSize)
	if list := s.RoomProblems(); len(list) != 1 || !strings.Contains(list[0], "512 MiB") {
		t.Errorf("%q", list)
	}
	s.wal.failures.Store(3)
	s.wal.lastErr.Store("disk I/O error")
	if list := s.RoomProblems(); len(list) != 2 || !strings.Contains(list[0], "3 times in a row: disk I/O error") {
		t.Errorf("%q", list)
	}
}

// TestOlderVersionIsCopiedFirst: a database is copied before it is migrated,
// and the copy keeps the old content. No copy is replaced.
func TestOlderVersionIsCopiedFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	s := openAt(t, path)
	err := s.Write(&Op{Do: func(t *Tx) error { return t.Exec(`INSERT INTO t VALUES (1, 'old')`) }})
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	next := optionsAt(path, 2)
	next.Now = func() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }
	s, err = Open(t.Context(), next)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Abandon(); err != nil {
		t.Fatal(err)
	}
	var version int64
	var row string
	copied := raw(t, path+".v1-20260301T120000Z")
	if err := copied.QueryRow(`SELECT (SELECT user_version FROM pragma_user_version()), y FROM t`).Scan(&version, &row); err != nil || version != 1 || row != "old" {
		t.Errorf("version %d, %q, %v", version, row, err)
	}
	raw(t, path).MustExec(`PRAGMA user_version = 1`)
	if s, err = Open(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	if err := s.Abandon(); err != nil {
		t.Fatal(err)
	}
	if copies := copiesOf(t, path); len(copies) != 2 || copies[1] != copies[0]+"-2" {
		t.Errorf("after another migration in the same second: %q", copies)
	}
}

func copiesOf(t *testing.T, path string) []string {
	t.Helper()
	copies, err := filepath.Glob(path + ".v1-*")
	if err != nil {
		t.Fatal(err)
	}
	return copies
}

// TestAFailedMigrationLeavesNoCopy: the database is as it was, so each start that tries again would add a copy of it
// until the disk is full. The copy stays if it is not certain what is on disk.
func TestAFailedMigrationLeavesNoCopy(t *testing.T) {
	for _, one := range []struct {
		name   string
		fails  error
		copies int
	}{
		{"an ordinary fault", errors.New("a row of an unknown kind"), 0},
		{"a fault of the disk", &FatalError{errors.New("the disk does not answer")}, 1},
	} {
		t.Run(one.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.db")
			if err := openAt(t, path).Close(); err != nil {
				t.Fatal(err)
			}
			next := optionsAt(path, 2)
			next.Schema.Migrate = func(ctx context.Context, conn *sqlx.Conn, _ int64) error {
				_, err := conn.ExecContext(ctx, `DROP TABLE t`)
				return errors.Join(err, one.fails)
			}
			s, err := Open(t.Context(), next)
			if err == nil {
				_ = s.Abandon()
				t.Fatal("a failed migration was no error")
			}
			if copies := copiesOf(t, path); len(copies) != one.copies {
				t.Errorf("copies: %q", copies)
			}
			var rows int64
			if err := raw(t, path).Get(&rows, `SELECT count(*) FROM t`); err != nil {
				t.Errorf("the database has changed: %v", err)
			}
		})
	}
}

// TestBackupNamesThatCannotBe: the error says what is wrong with the name, before anything is copied.
func TestBackupNamesThatCannotBe(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.db")
	openAt(t, path)
	for name, want := range map[string]string{
		path:                    "exists, and a backup never replaces a file",
		path + "/below.db":      "cannot be",
		dir + "/missing/out.db": "the backup's folder cannot be written",
		filepath.Join(dir, strings.Repeat("n", 300)): "cannot be the name of a backup",
	} {
		err := Backup(t.Context(), path, name, func(string) error { t.Error("it was copied"); return nil })
		var operator *OperatorError
		if !errors.As(err, &operator) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLateRefusal: an operation that refuses after it has changed something changes nothing, and has its refusal recorded.
func TestLateRefusal(t *testing.T) {
	e := openAt(t, filepath.Join(t.TempDir(), "ckpt.db"))
	recorded := 0
	for name, change := range map[string]func(*Tx) error{
		"exec": func(tx *Tx) error { return tx.Exec(`INSERT INTO t VALUES (1, 'late')`) },
		"change": func(tx *Tx) error {
			_, err := tx.Change(new(int), `INSERT INTO t VALUES (1, 'late') RETURNING x`)
			return err
		},
		"changes": func(tx *Tx) error {
			return tx.Changes(&[]int{}, `INSERT INTO t VALUES (1, 'late') RETURNING x`)
		},
	} {
		before := recorded
		err := e.Write(&Op{Do: func(tx *Tx) error {
			if err := change(tx); err != nil {
				return err
			}
			return ckpt.Errorf(ckpt.CodeConflict, "too late")
		}, Refused: func(*Tx, *ckpt.Error) error { recorded++; return nil }})
		if ckpt.CodeOf(err) != ckpt.CodeConflict || recorded != before+1 {
			t.Errorf("%s: answered %v, recorded %d times", name, err, recorded-before)
		}
	}
	var left int
	if err := e.Readers().Get(&left, `SELECT count(*) FROM t`); err != nil || left != 0 {
		t.Errorf("%d rows are left, %v", left, err)
	}
}
