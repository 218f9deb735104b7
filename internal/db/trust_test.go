package db_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/audit"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/resume"
)

// conversation is a state of an agent after this many turns, large enough to be
// stored as pieces.
func conversation(turns int) string {
	var b strings.Builder
	b.WriteString(`{"turns":[`)
	for i := range turns {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"turn %d: %s"`, i, hashOf(fmt.Sprint(i)))
	}
	b.WriteString(`]}`)
	return b.String()
}

// readsBack reports whether the state of a checkpoint is what was saved.
func readsBack(t testing.TB, s *db.Store, c *ckpt.Saved, state string) bool {
	t.Helper()
	got, err := s.Checkpoint(t.Context(), ann, c.ID, true)
	if ckpt.CodeOf(err) == ckpt.CodeCorrupt {
		return false
	}
	must(t, err)
	return string(got.State) == state
}

// breakSegments changes two bytes of every stored piece of a run, as a person
// with the sqlite3 command does while the daemon runs.
const breakSegments = `UPDATE segments SET data = CAST(substr(data, 1, 40) || x'ffff' || substr(data, 43) AS BLOB)`

// TestSavesAfterDamageStandAlone changes the pieces of a run's newest state
// while the daemon runs. Later saves must not use them as their base.
func TestSavesAfterDamageStandAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	for turns := 100; turns < 103; turns++ {
		save(t, s, ann, "a", ckpt.KindRoutine, conversation(turns))
	}
	forge(t, path, breakSegments)
	for turns := 103; turns < 111; turns++ {
		state := conversation(turns)
		if c := save(t, s, ann, "a", ckpt.KindRoutine, state); !readsBack(t, s, c, state) {
			t.Errorf("save number %d was acknowledged and does not read back", c.Seq)
		}
	}
	sound(t, path)
}

// TestOurOwnWorkCastsNoDoubt: copies and cuts of the log, backups and auditors
// do not make the next save read its run's newest state again.
func TestOurOwnWorkCastsNoDoubt(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	s.SetWALTarget(64 << 10)
	for i, between := range []func(){
		func() {},
		s.CopyWAL,
		func() { must(t, s.EmptyWAL()) },
		func() { must(t, s.Upkeep(t.Context())) },
		func() { sqlite3(t, "-readonly", path, `SELECT count(*) FROM audit_checkpoints`) },
		func() { sqlite3(t, path, `SELECT count(*) FROM audit_checkpoints`) },
		func() { must(t, db.Backup(t.Context(), path, path+".backup", nil)) },
		func() { sound(t, path) },
	} {
		for turns := range 4 {
			save(t, s, ann, "a", ckpt.KindRoutine, conversation(100+10*i+turns))
		}
		between()
		save(t, s, ann, "b", ckpt.KindRoutine, conversation(100+10*i))
		if s.Doubts() != 0 {
			t.Fatalf("after step %d the pieces in memory are in doubt", i)
		}
	}
	sqlite3(t, path, `UPDATE runs SET goal = 'ours'`)
	save(t, s, ann, "a", ckpt.KindRoutine, conversation(300))
	if s.Doubts() != 1 {
		t.Errorf("%d doubts after another program has written", s.Doubts())
	}
}

// wantFound fails the test unless verify reports a rule with a subject that
// contains a word.
func wantFound(t testing.TB, path, rule, word string) {
	t.Helper()
	report, err := audit.Verify(t.Context(), path, nil)
	must(t, err)
	for _, p := range report.Problems {
		if p.Rule == rule && strings.Contains(p.Subject+" "+p.Detail, word) {
			return
		}
	}
	t.Errorf("verify does not find %s %s: %v", rule, word, report.Problems)
}

// TestForgeriesAreFound rewrites stored rows past the guards, so that each row
// is valid by itself, and checks that verify and the auditors' view find it.
func TestForgeriesAreFound(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	other := `{"n":"other"}` // as long as the original
	for name, forgery := range map[string]struct{ statement, rule, word string }{
		"state and hash":       {fmt.Sprintf(`UPDATE checkpoints SET body = CAST('%s' AS BLOB), sha256 = '%s' WHERE seq = 2`, other, hashOf(other)), "audit_row", "sha256"},
		"kind":                 {`UPDATE checkpoints SET kind = 'recovery' WHERE seq = 2`, "audit_row", "kind"},
		"time":                 {`UPDATE checkpoints SET created_at = '2026-02-28T12:00:00.000Z' WHERE seq = 2`, "audit_row", "created_at"},
		"parent":               {`UPDATE checkpoints SET parent = NULL WHERE seq = 2`, "audit_row", "parent"},
		"metadata":             {`UPDATE checkpoints SET metadata = '{"a":1}' WHERE seq = 2`, "audit_row", "metadata"},
		"labels":               {`UPDATE checkpoints SET labels = '{"a":"1"}' WHERE seq = 2`, "audit_row", "labels"},
		"labels gone":          {`UPDATE checkpoints SET labels = '{}' WHERE seq = 3`, "audit_row", "labels"},
		"suspect":              {`UPDATE checkpoints SET suspect = 1 WHERE seq = 2`, "suspect", "no finding that stands"},
		"pin":                  {`UPDATE checkpoints SET pinned = 1 WHERE seq = 2`, "audit_row", "pinned"},
		"order":                {`UPDATE checkpoints SET seq = 5 - seq WHERE seq IN (2, 3)`, "audit_row", "seq"},
		"another id":           {`UPDATE checkpoints SET id = '01a202d3-3556-7d0b-a440-45302c5408b8' WHERE seq = 2`, "audit_row", "id"},
		"another run":          {`UPDATE checkpoints SET run_id = (SELECT id FROM runs WHERE name = 'other') WHERE seq = 2`, "audit_row", "agent or run"},
		"another agent":        {`UPDATE agents SET owner = 'uid:1002'`, "audit_row", "agent or run"},
		"the log ends earlier": {`DELETE FROM acts WHERE n > 4`, "audit_row", "is gone"},
		"the log is empty":     {`DELETE FROM acts`, "audit_row", "is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ckpt.db")
			s := openWith(t, options(path, newClock()))
			for i := range 3 {
				save(t, s, ann, "a", ckpt.KindRoutine, fmt.Sprintf(`{"n":"numb%d"}`, i))
			}
			_, err := s.Save(t.Context(), ann, &ckpt.SaveRequest{Agent: "a", Run: "other", Kind: ckpt.KindRoutine, State: []byte(`1`),
				Labels: ckpt.Labels{"b": "2", "a": "<1>"}, Metadata: []byte(`{"x": 1}`), Program: &ckpt.Program{Source: "x()"}})
			must(t, err)
			page, err := s.Checkpoints(t.Context(), ann, ckpt.CheckpointFilter{Agent: "a", Run: "main"})
			must(t, err)
			for _, pinned := range []bool{true, false} { // a change by the daemon itself is not a forgery
				_, err = s.Patch(t.Context(), ann, page.Checkpoints[0].ID, ckpt.CheckpointPatch{Labels: &ckpt.Labels{"z": "9"}, Pinned: &pinned})
				must(t, err)
			}
			sound(t, path)
			forge(t, path, forgery.statement)
			wantFound(t, path, forgery.rule, forgery.word)
			if slices.Contains([]string{"parent", "metadata", "labels", "pinned"}, forgery.word) {
				return // this needs a hash that the sqlite3 command does not have
			}
			if forgery.rule == "audit_row" && sqlite3(t, "-readonly", path, `SELECT count(*) FROM audit_violations WHERE rule = 'audit_row'`) == "0" {
				t.Error("audit_violations does not find it")
			}
		})
	}
}

// TestNobodyRewritesByHand: the sqlite3 command alone cannot change anything
// that was saved or recorded.
func TestNobodyRewritesByHand(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	for turns := 100; turns < 103; turns++ {
		r := request("a", ckpt.KindRoutine, conversation(turns))
		r.ID = newID(t)
		_, err := s.Save(t.Context(), ann, r)
		must(t, err)
	}
	for _, statement := range []string{
		breakSegments, `REPLACE INTO segments SELECT id, run_id, size, zeroblob(length(data)) FROM segments`,
		`UPDATE checkpoints SET sha256 = lower(hex(zeroblob(32)))`, `UPDATE checkpoints SET kind = 'recovery'`, `UPDATE checkpoints SET created_at = ''`,
		`UPDATE checkpoints SET metadata = '{"a":1}'`, `UPDATE checkpoints SET parent = NULL`, `UPDATE OR REPLACE checkpoints SET n = n + 1`,
		`REPLACE INTO checkpoints SELECT * FROM checkpoints`,
		`UPDATE meta SET value = 'x' WHERE key = 'database_id'`, `DELETE FROM meta`,
		`REPLACE INTO meta VALUES ('database_id', 'x')`, `UPDATE agents SET owner = 'uid:1'`, `UPDATE runs SET name = 'x'`, `UPDATE ids SET n = 1`, `UPDATE acts SET who = 1`, `UPDATE act_texts SET reason = 'x'`,
	} {
		if out, err := tool(t, "sqlite3", path, statement).CombinedOutput(); err == nil {
			t.Errorf("%s succeeded: %s", statement, out)
		}
	}
	sound(t, path)
	forge(t, path, `SELECT 1`)
	sound(t, path)
	sqlite3(t, path, `DROP TRIGGER segments_are_never_changed`)
	wantFound(t, path, "guard", "segments_are_never_changed")
}

// TestVerifyTrustsNoView: a view that was changed to return nothing hides
// nothing from verify.
func TestVerifyTrustsNoView(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	forge(t, path, `UPDATE checkpoints SET kind = 'recovery'; DROP VIEW audit_violations;
		CREATE VIEW audit_violations (rule, subject, detail) AS SELECT 1, 2, 3 WHERE 0`)
	wantFound(t, path, "audit_row", "kind")
}

// resumable returns options for a store that makes resume plans.
func resumable(path string, c *clock) db.Options {
	o := options(path, c)
	o.Resume = resume.Make
	return o
}

// TestDamageCountsForNothing breaks the newest checkpoints of a run, reads one,
// and continues to save. The policy's number of intact checkpoints is kept, a
// resume finds one, and everything that reports damage reports it.
func TestDamageCountsForNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, resumable(path, newClock()))
	var all []*ckpt.Saved
	for i := range 3 {
		all = append(all, save(t, s, ann, "a", ckpt.KindRoutine, fmt.Sprintf(`{"n":%d}`, i)))
	}
	if state, problems := s.Health(); state != "ready" {
		t.Fatalf("%s: %v", state, problems)
	}
	forge(t, path, `UPDATE checkpoints SET body = CAST('{"x":9}' AS BLOB) WHERE seq > 1`)
	for _, c := range all[1:] {
		_, err := s.Checkpoint(t.Context(), ann, c.ID, true)
		wantCode(t, err, ckpt.CodeCorrupt)
	}
	wantSeqs := func(want ...string) {
		t.Helper()
		if got := seqs(t, s, ann, "a"); !slices.Equal(got, want) {
			t.Fatalf("there is %v, want %v", got, want)
		}
	}
	save(t, s, ann, "a", ckpt.KindRoutine, `{"n":4}`)
	save(t, s, ann, "a", ckpt.KindRoutine, `{"n":5}`)
	wantSeqs("routine 5", "routine 4", "routine 3", "routine 2", "routine 1") // three of these are intact
	if found := sqlite3(t, "-readonly", path, `SELECT count(*) FROM audit_violations WHERE rule NOT IN ('damaged', 'audit_row')`); found != "0" {
		t.Errorf("%s violations of another kind", found)
	}
	must(t, s.Close())

	s = openWith(t, resumable(path, newClock())) // it knows the damage from the database
	state, problems := s.Health()
	if state != "degraded" || len(problems) != 1 || !strings.Contains(problems[0], "damaged") {
		t.Errorf("%s: %v", state, problems)
	}
	st, err := s.Status(t.Context(), root)
	must(t, err)
	if st.State != "degraded" || st.Database.Damaged != 2 {
		t.Errorf("%s, %d damaged", st.State, st.Database.Damaged)
	}
	if st, err = s.Status(t.Context(), bob); err != nil || st.Database.Damaged != 0 {
		t.Errorf("a stranger is told how many are damaged: %d %v", st.Database.Damaged, err)
	}
	if got := sqlite3(t, "-readonly", path, `SELECT count(*) FROM audit_violations WHERE rule = 'damaged'`); got != "2" {
		t.Errorf("audit_violations names %s damaged", got)
	}
	save(t, s, ann, "a", ckpt.KindRoutine, `{"n":6}`)
	wantSeqs("routine 6", "routine 5", "routine 4") // the damaged ones are older than what the policy keeps
	if state, problems := s.Health(); state != "ready" {
		t.Errorf("when the damaged ones have gone: %s %v", state, problems)
	}
	plan, _, err := s.Resume(t.Context(), ann, ckpt.ResumeRequest{Agent: "a"})
	must(t, err)
	if plan.Verdict != ckpt.VerdictResume {
		t.Errorf("resume says %s: %v", plan.Verdict, plan.Reasons)
	}
	sound(t, path)
}

// TestLastIntactStays: all checkpoints after the last intact one are damaged,
// so that one stays, even after others were removed for new ones.
func TestLastIntactStays(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, resumable(path, newClock()))
	p := ckpt.DefaultPolicy()
	p.RoutineKeep = 1
	_, err := s.SetPolicy(t.Context(), ann, "a", p)
	must(t, err)
	first := save(t, s, ann, "a", ckpt.KindRoutine, `{"n":1}`)
	_, err = s.Patch(t.Context(), ann, first.ID, ckpt.CheckpointPatch{Pinned: new(true)})
	must(t, err)
	second := save(t, s, ann, "a", ckpt.KindRoutine, `{"n":2}`)
	forge(t, path, `UPDATE checkpoints SET body = CAST('{"x":9}' AS BLOB) WHERE seq = 2`)
	_, err = s.Checkpoint(t.Context(), ann, second.ID, true)
	wantCode(t, err, ckpt.CodeCorrupt)
	_, err = s.Patch(t.Context(), ann, first.ID, ckpt.CheckpointPatch{Pinned: new(false)}) // this applies the policy
	must(t, err)
	if got := seqs(t, s, ann, "a"); !slices.Contains(got, "routine 1") {
		t.Fatalf("the last intact checkpoint has gone, there is %v", got)
	}
	plan, _, err := s.Resume(t.Context(), ann, ckpt.ResumeRequest{Agent: "a"})
	must(t, err)
	if plan.Verdict != ckpt.VerdictRepair || plan.Checkpoint == nil || plan.Checkpoint.ID != first.ID {
		t.Errorf("resume says %s with %v: %v", plan.Verdict, plan.Checkpoint, plan.Reasons)
	}
}

// TestErasedDamageIsForgotten: the mark of damage is removed with the
// checkpoint.
func TestErasedDamageIsForgotten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	c := save(t, s, ann, "a", ckpt.KindRoutine, `{"n":1}`)
	forge(t, path, `UPDATE checkpoints SET body = CAST('{"x":9}' AS BLOB)`)
	_, err := s.Checkpoint(t.Context(), ann, c.ID, true)
	wantCode(t, err, ckpt.CodeCorrupt)
	_, err = s.Erase(t.Context(), ann, "a")
	must(t, err)
	if state, problems := s.Health(); state != "ready" {
		t.Errorf("%s: %v", state, problems)
	}
	if left := sqlite3(t, "-readonly", path, `SELECT count(*) FROM meta WHERE key LIKE 'damaged:%'`); left != "0" {
		t.Errorf("%s marks are left", left)
	}
}
