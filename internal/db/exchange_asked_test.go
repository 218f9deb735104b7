package db_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestAnExportAnswersAuditors asks an export five questions with the stock sqlite3 command. The daemon's database gives
// the same answers. What belongs to other agents, and how much there is of it, is not in the export.
func TestAnExportAnswersAuditors(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	for range 20 {
		save(t, s, bob, "others", ckpt.KindRoutine, `"a secret of another"`)
	}
	save(t, s, ann, "neighbor", ckpt.KindRoutine, `"of another agent"`)
	for i := range 5 {
		save(t, s, ann, "a", ckpt.KindRoutine, `{"n":"`+strings.Repeat("grows ", 1000+100*i)+`"}`)
	}
	_, _, err := s.BeginOperation(t.Context(), ann, mainRun, ckpt.OperationRequest{Key: "pay", Name: "pay the invoice", State: ckpt.JSON(`{"n":2}`)})
	must(t, err)
	_, _, err = s.EndOperation(t.Context(), ann, mainRun, ckpt.OperationEnd{Key: "pay", Status: ckpt.OperationFailed, Error: "no money"})
	must(t, err)
	_, _, err = s.BeginStep(t.Context(), ann, mainRun, ckpt.StepRequest{Key: "k", Name: "build", Status: ckpt.StepSucceeded, Args: ckpt.JSON(`{"x":1}`)})
	must(t, err)
	scope := ann
	scope.Reason = "to look at it"
	var out bytes.Buffer
	must(t, s.Export(t.Context(), scope, "a", &out))
	export := filepath.Join(t.TempDir(), "a.ckpt")
	must(t, os.WriteFile(export, out.Bytes(), 0o600))
	must(t, s.Close())

	for _, question := range []string{
		`SELECT run, seq, kind, created_at, size, sha256 FROM audit_checkpoints WHERE agent = 'a' AND owner = 'uid:1001' ORDER BY seq`,
		`SELECT at, who, action, run, subject, outcome, reason FROM audit_log WHERE agent = 'a' AND owner = 'uid:1001' ORDER BY n`,
		`SELECT id, kind, seq, reason FROM audit_removals WHERE agent = 'a' AND owner = 'uid:1001' ORDER BY n, seq`,
		`SELECT key, name, status, error, checkpoint FROM audit_operations WHERE agent = 'a' AND owner = 'uid:1001'`,
		`SELECT seq, length(state), substr(state, 1, 20) FROM audit_states WHERE agent = 'a' AND owner = 'uid:1001' ORDER BY seq`,
	} {
		is, want := sqlite3(t, export, question), sqlite3(t, path, question)
		if is != want || is == "" {
			t.Errorf("%s\nin the export:\n%s\nin the database:\n%s", question, is, want)
		}
	}
	if got := sqlite3(t, export, `SELECT * FROM audit_violations`); got != "" {
		t.Errorf("the export violates %s", got)
	}
	sound(t, export)
	for _, other := range []string{"a secret of another", "uid:1002", "neighbor", "of another agent"} {
		if bytes.Contains(out.Bytes(), []byte(other)) {
			t.Errorf("the export has %q", other)
		}
	}
	if got := sqlite3(t, export, `SELECT (SELECT min(n) FROM acts), (SELECT max(id) FROM agents), (SELECT max(id) FROM runs)`); got != "1|1|1" {
		t.Errorf("the numbers of the export are %s", got)
	}
	for _, key := range []string{"chain_key", "database_id"} {
		query := `SELECT value FROM meta WHERE key = '` + key + `'`
		if sqlite3(t, export, query) == sqlite3(t, path, query) {
			t.Errorf("the export has the database's %s", key)
		}
	}
}
