package db_test

import (
	"path/filepath"
	"slices"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/audit"
)

// TestChangedRunsAndStepsAreFound changes columns of runs, steps and checkpoints by hand, past the guards. verify finds each change, because the audit
// log has what the program wrote. Before, it finds nothing.
func TestChangedRunsAndStepsAreFound(t *testing.T) {
	t.Parallel()
	s, _, _ := openRuns(t)
	ref := ckpt.RunRef{Agent: "a"}
	start(t, s, 7)
	step := func(key string, finish bool, r ckpt.StepRequest) {
		t.Helper()
		r.Key, r.Name = key, "tool"
		do := s.BeginStep
		if finish {
			do, r.Name = s.FinishStep, ""
		}
		_, _, err := do(t.Context(), as(7), ref, r)
		must(t, err)
	}
	step("done", false, ckpt.StepRequest{Args: ckpt.JSON(`{"n":1}`)})
	step("done", true, ckpt.StepRequest{Result: ckpt.JSON(`{"sent":true}`)})
	step("failed", false, ckpt.StepRequest{Args: ckpt.JSON(`{"n":2}`), Status: ckpt.StepFailed, Error: "no"})
	step("open", false, ckpt.StepRequest{})
	first := save(t, s, as(7), "a", ckpt.KindRoutine, `1`)
	_, _, err := s.BeginOperation(t.Context(), as(7), ref, ckpt.OperationRequest{Key: "pay", Name: "pay", State: []byte(`2`)})
	must(t, err)
	save(t, s, as(7), "a", ckpt.KindRoutine, `3`)
	for _, name := range []string{"b", "c"} {
		_, _, err = s.StartRun(t.Context(), as(7), ckpt.RunRequest{Agent: "a", Run: name, PID: 7})
		must(t, err)
	}
	_, _, err = s.EndRun(t.Context(), as(7), ckpt.RunRef{Agent: "a", Run: "b"}, ckpt.EndRequest{Status: ckpt.RunCompleted})
	must(t, err)
	save(t, s, ann, "moved", ckpt.KindRoutine, `1`)
	_, _, err = s.BeginStep(t.Context(), ann, ckpt.RunRef{Agent: "moved"}, ckpt.StepRequest{Key: "x", Name: "tool", Status: ckpt.StepSucceeded, Result: ckpt.JSON(`1`)})
	must(t, err)
	chown(t, s, toBob("moved"))
	path := pathOf(s)
	must(t, s.Close())
	problems := func(path string) []audit.Problem {
		t.Helper()
		report, err := audit.Verify(t.Context(), path, nil)
		must(t, err)
		return report.Problems
	}
	if list := problems(path); len(list) > 0 {
		t.Fatalf("before a change: %v", list)
	}
	for statement, rule := range map[string]string{
		`UPDATE steps SET result = '{"sent":false}' WHERE key = 'done'`:                "audit_step",
		`UPDATE steps SET result = NULL WHERE key = 'done'`:                            "audit_step",
		`UPDATE steps SET args = '{"n":3}' WHERE key = 'done'`:                         "audit_step",
		`UPDATE steps SET status = 'started' WHERE key = 'done'`:                       "audit_step",
		`UPDATE steps SET status = 'succeeded' WHERE key = 'failed'`:                   "audit_step",
		`UPDATE steps SET error = 'yes' WHERE key = 'failed'`:                          "audit_step",
		`UPDATE steps SET status = 'succeeded', result = '1' WHERE key = 'open'`:       "audit_step",
		`UPDATE steps SET attempt = 2 WHERE key = 'open'`:                              "audit_step",
		`UPDATE steps SET name = 'other' WHERE key = 'open'`:                           "audit_step",
		`UPDATE steps SET result = '2' WHERE key = 'x'`:                                "audit_step", // of an agent that was given away
		`UPDATE runs SET epoch = epoch - 1 WHERE name = 'main' AND pid = 7`:            "audit_run",
		`UPDATE runs SET epoch = epoch + 1 WHERE name = 'b'`:                           "audit_run",
		`UPDATE runs SET status = 'failed' WHERE name = 'b'`:                           "audit_run",
		`UPDATE runs SET status = 'completed' WHERE name = 'c'`:                        "audit_run",
		`UPDATE runs SET head = '` + first.ID + `' WHERE head IS NOT NULL AND pid = 7`: "audit_run",
		`UPDATE runs SET head = NULL WHERE head IS NOT NULL AND pid = 7`:               "audit_run",
		`UPDATE checkpoints SET operation = 'other' WHERE operation = 'pay'`:           "audit_row",
		`UPDATE checkpoints SET operation = NULL WHERE operation = 'pay'`:              "audit_row",
		`UPDATE checkpoints SET operation = 'pay' WHERE kind = 'routine'`:              "audit_row",
	} {
		forged := filepath.Join(t.TempDir(), "forged.db")
		copyDatabaseTo(t, path, forged)
		if out, err := edit(t, forged, db.Unguarded(statement)); err != nil {
			t.Fatalf("%s: %s", statement, out)
		}
		list := problems(forged)
		if !slices.ContainsFunc(list, func(p audit.Problem) bool { return p.Rule == rule }) {
			t.Errorf("%s: verify finds %v", statement, list)
		}
	}
}
