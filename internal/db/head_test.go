package db_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/audit"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// doubtful opens a database, saves something, and returns its health.
func doubtful(t *testing.T, path string) (state, problems string) {
	t.Helper()
	s, err := db.Open(t.Context(), options(path, newClock()))
	must(t, err)
	for i := range 4 {
		save(t, s, ann, "a", ckpt.KindRoutine, fmt.Sprintf(`{"again":%d}`, i))
	}
	state, list := s.Health()
	must(t, s.Close())
	return state, strings.Join(list, "\n")
}

// copyDatabaseTo copies a closed database.
func copyDatabaseTo(t *testing.T, from, to string) {
	t.Helper()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		b, err := os.ReadFile(from + suffix)
		if !errors.Is(err, os.ErrNotExist) {
			must(t, err)
			write(t, to+suffix, b)
		}
	}
}

// TestStartTellsOfAnotherLog cuts, empties and replaces the audit log of a
// stopped daemon. The next daemon starts, saves, and reports what it found, at
// each start until an operator acknowledges it.
func TestStartTellsOfAnotherLog(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	for name, c := range map[string]struct {
		does func(t *testing.T, path string)
		says string
		lost bool // the file that stores the head is missing as well
	}{
		"cut": {does: func(t *testing.T, path string) {
			forge(t, path, `DELETE FROM acts WHERE n > 5`)
		}, says: "ends with row 5 now"},
		"cut, and no file": {does: func(t *testing.T, path string) {
			forge(t, path, `DELETE FROM acts WHERE n > 5`)
		}, says: "checkpoints were saved up to row", lost: true},
		"cut, and its texts stay": {does: func(t *testing.T, path string) {
			s := openWith(t, options(path, newClock()))
			id := save(t, s, ann, "a", ckpt.KindRoutine, `1`).ID
			said := ann
			said.Reason = "it matters"
			pinned := true
			_, err := s.Patch(t.Context(), said, id, ckpt.CheckpointPatch{Pinned: &pinned})
			must(t, err)
			s.Close()
			forge(t, path, `DELETE FROM acts WHERE n > 5; DELETE FROM checkpoints WHERE n > 5`)
		}, says: "its details go up to row", lost: true},
		"emptied": {does: func(t *testing.T, path string) {
			forge(t, path, `DELETE FROM acts`)
		}, says: "it is empty", lost: true},
		"rows added": {does: func(t *testing.T, path string) {
			forge(t, path, `INSERT INTO acts (n, at, who, pid, action, hash) SELECT n + 1, at, who, pid, action, hash FROM acts ORDER BY n DESC LIMIT 1`)
		}, says: "does not match its hash", lost: true},
		"an older copy": {does: func(t *testing.T, path string) {
			older := path + ".older"
			copyDatabaseTo(t, path, older)
			doubtful(t, path)
			copyDatabaseTo(t, older, path)
		}, says: "an older copy was put back"},
		"an older copy that went on": {does: func(t *testing.T, path string) {
			older := filepath.Join(t.TempDir(), "ckpt.db")
			copyDatabaseTo(t, path, older)
			doubtful(t, path)
			for range 4 {
				doubtful(t, older)
			}
			copyDatabaseTo(t, older, path)
		}, says: "had another hash"},
		"another database": {does: func(t *testing.T, path string) {
			other := filepath.Join(t.TempDir(), "ckpt.db")
			doubtful(t, other)
			copyDatabaseTo(t, other, path)
		}, says: "another database"},
		"a torn file": {does: func(t *testing.T, path string) { write(t, path+".head", []byte(`{"n":`)) }, says: "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ckpt.db")
			for range 2 {
				if state, problems := doubtful(t, path); state != "ready" {
					t.Fatalf("%s before anything was done: %s", state, problems)
				}
			}
			c.does(t, path)
			if c.lost {
				must(t, os.Remove(path+".head"))
			}
			for start := range 3 {
				if state, problems := doubtful(t, path); state != "degraded" || !strings.Contains(problems, c.says) {
					t.Errorf("start %d: %s: %s", start, state, problems)
				}
			}
			if got := sqlite3(t, "-readonly", path, `SELECT count(*) FROM audit_log WHERE action = 'start' AND json_extract(detail, '$.doubt') IS NOT NULL`); got != "3" {
				t.Errorf("%s of 3 starts are recorded with what was found", got)
			}
			must(t, os.Remove(path+".head"))
			if state, problems := doubtful(t, path); state != "ready" {
				t.Errorf("after somebody took note: %s: %s", state, problems)
			}
		})
	}
}

// TestChangedLogStopsTheDaemon: the log is cut while a daemon runs. The daemon
// stops saving, and the next one says why.
func TestChangedLogStopsTheDaemon(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	for range 4 {
		save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	}
	forge(t, path, `DELETE FROM acts WHERE n > 3`)
	_, err := s.Save(t.Context(), ann, request("a", ckpt.KindRoutine, `2`))
	wantCode(t, err, ckpt.CodeBusy)
	if state, problems := s.Health(); state != "failed" || !strings.Contains(problems[0], "another program has changed the audit log") {
		t.Errorf("%s: %v", state, problems)
	}
	must(t, s.Close())
	if state, problems := doubtful(t, path); state != "degraded" || !strings.Contains(problems, "ends with row 3, and checkpoints were saved up to row") {
		t.Errorf("%s: %s", state, problems)
	}
}

// TestGuardsComeBack: a start restores missing guards, and reports it.
func TestGuardsComeBack(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	doubtful(t, path)
	sqlite3(t, path, `DROP TRIGGER acts_are_never_changed; DROP TRIGGER segments_are_never_changed;
		CREATE TRIGGER segments_are_never_changed BEFORE UPDATE ON segments BEGIN SELECT 1; END`)
	if state, problems := doubtful(t, path); state != "degraded" || !strings.Contains(problems, "triggers") {
		t.Errorf("%s: %s", state, problems)
	}
	sound(t, path)
	if state, problems := doubtful(t, path); state != "ready" {
		t.Errorf("%s: %s", state, problems)
	}
}

// TestViewsAreOfThisProgram: a program with the same tables and other views has made the database. A start gives
// auditors the views of this one, and that is no trouble.
func TestViewsAreOfThisProgram(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	doubtful(t, path)
	const views = `SELECT group_concat(name || sql, char(10)) FROM (SELECT name, sql FROM sqlite_schema WHERE type = 'view' ORDER BY name)`
	before := sqlite3(t, "-readonly", path, views)
	sqlite3(t, path, `DROP VIEW audit_states; DROP VIEW audit_violations;
		CREATE VIEW audit_violations (rule, subject, detail) AS SELECT 'an old rule', 'all', 'is broken';
		CREATE VIEW of_the_auditor AS SELECT 1`)
	if state, problems := doubtful(t, path); state != "ready" {
		t.Errorf("%s: %s", state, problems)
	}
	if got := sqlite3(t, "-readonly", path, `SELECT count(*) FROM audit_violations`); got != "0" {
		t.Errorf("%s violations of an old rule", got)
	}
	sqlite3(t, path, `DROP VIEW of_the_auditor`)
	if after := sqlite3(t, "-readonly", path, views); after != before {
		t.Errorf("the views are\n%s\nand were\n%s", after, before)
	}
	sound(t, path)
}

// TestHeadIsLogged: the start and the stop log the head in the form that verify
// --against-log reads.
func TestHeadIsLogged(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	var log bytes.Buffer
	o := options(path, newClock())
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	s, err := db.Open(t.Context(), o)
	must(t, err)
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	s.NoteHead("backup")
	must(t, s.Close())
	for _, why := range []string{"start", "backup", "stop"} {
		if !strings.Contains(log.String(), "why="+why) {
			t.Errorf("the head is not logged at the %s:\n%s", why, &log)
		}
	}
}

// TestVerifyAgainstTheLog compares a database with the head that its daemon has
// logged, in each log format that an operator can have.
func TestVerifyAgainstTheLog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	var text, asJSON bytes.Buffer
	run := func(handler slog.Handler) {
		t.Helper()
		o := options(path, newClock())
		o.Log = slog.New(handler)
		s, err := db.Open(t.Context(), o)
		must(t, err)
		save(t, s, ann, "a", ckpt.KindRoutine, `1`)
		must(t, s.Close())
	}
	run(slog.NewTextHandler(&text, nil))
	older := filepath.Join(t.TempDir(), "older.db")
	copyDatabaseTo(t, path, older)
	run(slog.NewJSONHandler(&asJSON, nil))
	last := strings.ReplaceAll(sqlite3(t, "-readonly", path, `SELECT n || ':' || hash FROM audit_head`), "|", ":")
	journal, err := json.Marshal(map[string]string{"MESSAGE": text.String()})
	must(t, err)
	forged := filepath.Join(t.TempDir(), "forged.db")
	copyDatabaseTo(t, path, forged)
	forge(t, forged, `UPDATE acts SET hash = zeroblob(32)`)
	noise := "another line\n" + strings.Repeat("x", 200_000) + "\nn=7 hash=" + hashOf("x") + "\n"
	for name, c := range map[string]struct {
		log   string
		heads int64
		older bool // whether an older copy also has what was logged by then
	}{
		"text":                {log: noise + text.String(), heads: 2, older: true},
		"JSON":                {log: noise + asJSON.String(), heads: 2},
		"JSON of the journal": {log: string(journal) + "\n", heads: 1, older: true},
		"a head":              {log: last, heads: 1},
	} {
		heads, err := audit.ReadHeads(strings.NewReader(c.log))
		must(t, err)
		for file, intact := range map[string]bool{path: true, older: c.older, forged: false} {
			report, err := audit.VerifyAgainst(t.Context(), file, heads, nil)
			must(t, err)
			found := slices.ContainsFunc(report.Problems, func(p audit.Problem) bool { return p.Rule == "audit_head" })
			if found == intact || report.Heads != c.heads {
				t.Errorf("%s, %s: %d heads of %v, problems: %v", name, filepath.Base(file), report.Heads, heads, report.Problems)
			}
		}
	}
	other := filepath.Join(t.TempDir(), "ckpt.db")
	doubtful(t, other)
	heads, err := audit.ReadHeads(&text)
	must(t, err)
	_, err = audit.VerifyAgainst(t.Context(), other, heads, nil)
	wantCode(t, err, ckpt.CodeInvalid)
}
