//go:build unix

package db_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// views are the contract with auditors.
var views = map[string]string{
	"audit_agents":      "owner, agent, created_at, policy",
	"audit_runs":        "owner, agent, run, workflow, status, epoch, attempt, pid, parent_run, started_at, updated_at, ended_at, accumulated_ms, goal, progress, continuation_prompt, external_session, labels",
	"audit_checkpoints": "id, owner, agent, run, seq, kind, created_at, size, stored_size, sha256, parent, step, operation, pinned, suspect, labels, metadata",
	"audit_states":      "id, owner, agent, run, seq, kind, state",
	"audit_steps":       "key, name, args, status, result, error, started_at, ended_at",
	"audit_operations":  "key, name, status, checkpoint",
	"audit_findings":    "rule, severity, evidence",
	"audit_prompts":     "question, choice",
	"audit_events":      "seq, type, payload",
	"audit_log":         "n, at, who, pid, action, subject, outcome, retries, detail, prev, hash",
	"audit_violations":  "rule, subject, detail",
}

// TestAuditorsViews reads every view of the contract with the real sqlite3
// command: while the store is open, after a clean stop, and after a stop whose
// log was not copied.
func TestAuditorsViews(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	states := map[string]string{}
	for i, state := range []string{`{"b": 1.50,"ü":"\u00e9"}`, `{"t":"` + strings.Repeat("all work and no play ", 2000) + `"}`, `"` + strings.Repeat("日本語", 3000) + `"`, "[\n1]"} {
		c := save(t, s, ann, "a", ckpt.Kinds[i%3], state)
		states[c.ID] = state
	}
	_, err := s.Save(t.Context(), ann, binary("a", ckpt.KindRecovery, []byte{0, 1, 2}))
	must(t, err)
	check := func(when string) {
		for view, columns := range views {
			sqlite3(t, "-readonly", path, fmt.Sprintf("SELECT %s FROM %s", columns, view))
		}
		if got := sqlite3(t, "-readonly", path, "SELECT * FROM audit_violations"); got != "" {
			t.Errorf("%s: %s", when, got)
		}
		var rows []struct{ ID, State string }
		must(t, json.Unmarshal([]byte(sqlite3(t, "-readonly", "-json", path, "SELECT id, state FROM audit_states")), &rows))
		for _, row := range rows {
			if states[row.ID] != row.State {
				t.Errorf("%s: the state of %s reads %.60q", when, row.ID, row.State)
			}
		}
		if len(rows) != len(states) {
			t.Errorf("%s: %d states", when, len(rows))
		}
		if got := sqlite3(t, "-readonly", path, "SELECT count(*) FROM audit_checkpoints"); got != "5" {
			t.Errorf("%s: %s checkpoints", when, got)
		}
	}
	check("while it is open")
	must(t, s.Close())
	check("after a clean stop")
	s = openWith(t, options(path, newClock()))
	must(t, s.EmptyWAL())
	must(t, s.Close())
	check("after a stop with an empty log")
}

// TestAuditorComesAndGoes opens and closes the database with the real sqlite3
// command, plain and read-only, repeatedly under load. Nothing is lost, and the
// log stays the same file.
func TestAuditorComesAndGoes(t *testing.T) {
	t.Parallel()
	_ = tool(t, "sqlite3") // before saves go on beside it
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	s.SetWALTarget(1 << 20)
	save(t, s, ann, "first", ckpt.KindRoutine, `1`)
	before, err := os.Stat(path + "-wal")
	must(t, err)
	go func() { _ = s.Maintain(t.Context()) }()
	var stop atomic.Bool
	var saves atomic.Int64
	var wg sync.WaitGroup
	kept := make([][]string, 4)
	for w := range kept {
		wg.Go(func() {
			for i := 0; !stop.Load() || i < 4; i++ {
				c, err := s.Save(t.Context(), ann, request(fmt.Sprintf("a%d", w), ckpt.KindRoutine, fmt.Sprintf(`{"i":%d,"t":"%s"}`, i, strings.Repeat("x", i%5*2000))))
				if err != nil {
					t.Error(err)
					return
				}
				kept[w] = append(kept[w], c.ID)
				saves.Add(1)
			}
		})
	}
	for range moreOf(5, 40) {
		seen := saves.Load()
		expect.Soon(t, "some saves", func() bool { return saves.Load() > seen+8 || t.Failed() })
		for _, args := range [][]string{{"-readonly", path}, {path}} {
			if got := sqlite3(t, append(args, "SELECT count(*) FROM audit_log; SELECT * FROM audit_violations")...); strings.Contains(got, "|") {
				t.Errorf("violations: %s", got)
			}
		}
	}
	stop.Store(true)
	wg.Wait()
	after, err := os.Stat(path + "-wal")
	must(t, err)
	if !os.SameFile(before, after) {
		t.Error("the log was made anew")
	}
	for w, ids := range kept {
		page, err := s.Checkpoints(t.Context(), ann, ckpt.CheckpointFilter{Agent: fmt.Sprintf("a%d", w)})
		must(t, err)
		var have []string
		for _, c := range slices.Backward(page.Checkpoints) {
			have = append(have, c.ID)
		}
		if want := ids[len(ids)-3:]; !slices.Equal(have, want) {
			t.Errorf("agent %d of %d saves has %v, want %v", w, len(ids), have, want)
		}
	}
	must(t, s.Close())
	sound(t, path)
}
