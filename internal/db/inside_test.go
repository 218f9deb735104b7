package db

import (
	"bytes"
	"compress/zlib"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// coded makes SQLite itself give an error of a result code.
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

// TestOpenErrors says what to do about each way in which a file cannot be opened.
func TestOpenErrors(t *testing.T) {
	s := &Store{opt: Options{Path: "/x/ckpt.db"}}
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
		err := s.openError(c.err)
		var operator *OperatorError
		if !errors.As(err, &operator) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "/x/ckpt.db") {
			t.Errorf("%v became %T: %v", c.err, err, err)
		}
	}
}

// TestExplained gives each class of a failed write its answer, and stops the
// writer for none that it may survive.
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
	if err := readError(coded(t, `ATTACH '/nowhere/x.db' AS y`)); ckpt.CodeOf(err) != ckpt.CodeInternal {
		t.Error(err)
	}
}

// TestProblems names each in words, the gravest first, with the state that it makes.
func TestProblems(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "ckpt.db"))
	s.wal.written.Store(s.wal.copied.Load() + 2*walAlarm/pageSize)
	st := &ckpt.Status{State: "ready"}
	s.problems(st)
	if st.State != "degraded" || len(st.Problems) != 1 || !strings.Contains(st.Problems[0], "512 MiB") {
		t.Errorf("%s %q", st.State, st.Problems)
	}
	s.wal.failures.Store(3)
	s.wal.lastErr.Store("disk I/O error")
	s.health.readOnly = "damage"
	_ = s.writer.stop(&FatalError{errors.New("gone")})
	st = &ckpt.Status{State: "ready"}
	s.problems(st)
	text := strings.Join(st.Problems, "\n")
	if st.State != "failed" || len(st.Problems) != 4 || !strings.Contains(text, "3 times in a row: disk I/O error") || !strings.Contains(text, "gone") {
		t.Errorf("%s %q", st.State, st.Problems)
	}
}

// TestHeadIsLogged puts the head of the audit log where an intruder into the
// database does not reach it, every hour.
func TestHeadIsLogged(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "ckpt.db"))
	var out strings.Builder
	s.log = slog.New(slog.NewTextHandler(&out, nil))
	d := newDue(s)
	d.tick(t.Context(), time.Now())
	if out.Len() > 0 {
		t.Errorf("logged too early: %s", &out)
	}
	d.tick(t.Context(), time.Now().Add(auditLogEvery))
	if !strings.Contains(out.String(), fmt.Sprintf("n=%d hash=%s", s.writer.head.n, s.writer.head.hash)) {
		t.Errorf("logged: %s", &out)
	}
}

// TestFailedCopies counts failures of copying the log, says so, and forgets
// them at the next success.
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
// flush. The writer's own failure counts, until it has succeeded.
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
	if state, problems := s.Health(); state != "degraded" || len(problems) != 1 {
		t.Errorf("%s, %q", state, problems)
	}
	s.cutWAL(t.Context())
	if n := s.wal.failures.Load(); n != 0 {
		t.Errorf("%d failures after a success", n)
	}
}

// TestFailedCopiesAreBounded: where the log cannot be copied saves go on, until
// it has grown too long; then a fresh process must look.
func TestFailedCopiesAreBounded(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "ckpt.db"))
	s.side = raw(t, filepath.Join(t.TempDir(), "closed.db"))
	_ = s.side.Close()
	for range 2 * copyTries {
		s.copyWAL(t.Context())
	}
	if err := s.Ready(t.Context()); err != nil {
		t.Errorf("a short log: %v", err)
	}
	s.wal.written.Store(s.wal.copied.Load() + 2*walAlarm/pageSize)
	s.copyWAL(t.Context())
	select {
	case <-s.Failed():
	default:
		t.Error("a long log that cannot be copied is gone on with")
	}
}

// TestWindowsPaths makes a path into what SQLite's URIs want.
func TestWindowsPaths(t *testing.T) {
	for path, want := range map[string]string{`C:\a\b.db`: "/C:/a/b.db", "/a/b.db": "/a/b.db"} {
		if got := slashed(path); got != want {
			t.Errorf("%s became %s", path, got)
		}
	}
}

// TestFilledReserve: where a file system cannot be asked for room, bytes take it.
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

// Shared keys of a deep and large state of which there is no map would be looked
// for by reading it once for each level of each key: such a state is compared with
// nobody's.
func TestSharedKeysOfADeepStateAreBounded(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 200) + `"` + strings.Repeat("x", 33<<20) + `"` + strings.Repeat("}", 200)
	var pointers []string
	for i := range ckpt.MaxSharedKeys {
		pointers = append(pointers, strings.Repeat("/a", 100+i))
	}
	if got := sharedValues([]byte(deep), nil, pointers); got != nil {
		t.Errorf("%d values were looked for", len(got))
	}
	if got := sharedValues([]byte(`{"a":{"b":1}}`), nil, []string{"/a/b"}); got["/a/b"] == "" {
		t.Errorf("%v", got)
	}
}
