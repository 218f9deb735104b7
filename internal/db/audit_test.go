package db_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/audit"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// busyLog is a database whose audit log has rows of several kinds.
func busyLog(t *testing.T) (*db.Store, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	for i := range 5 {
		save(t, s, ann, "a", ckpt.KindRoutine, fmt.Sprint(i))
	}
	_, _, err := s.Restore(t.Context(), ann, ckpt.RestoreRequest{Agent: "a", Reason: "<tested> & \"quoted\" \u2028 ü"})
	must(t, err)
	_, _, err = s.Restore(t.Context(), bob, ckpt.RestoreRequest{Agent: "a"})
	wantCode(t, err, ckpt.CodeNotFound)
	_, err = s.SetPolicy(t.Context(), ann, "a", ckpt.DefaultPolicy())
	must(t, err)
	return s, path
}

// TestAuditChain recomputes the chain from the output of the real sqlite3
// command, by the description in AUDIT.md and without any of our code.
func TestAuditChain(t *testing.T) {
	t.Parallel()
	_, path := busyLog(t)
	var rows []struct {
		N              int
		Hash, Prev     string
		Input, Chained string
	}
	out := sqlite3(t, "-readonly", "-json", path, "SELECT l.n, l.hash, l.prev, c.input, c.hash AS chained FROM audit_log l JOIN audit_chain c ON c.n = l.n ORDER BY l.n")
	must(t, json.Unmarshal([]byte(out), &rows))
	if len(rows) < 9 {
		t.Fatalf("%d rows", len(rows))
	}
	before := ""
	for i, row := range rows {
		sum := sha256.Sum256([]byte(row.Input))
		if hash := hex.EncodeToString(sum[:]); row.Hash != hash || row.Chained != hash || row.Prev != before || row.N != i+1 || !strings.HasSuffix(row.Input, `,"`+before+`"]`) {
			t.Fatalf("row %d: %+v, want the hash %s", i+1, row, hash)
		}
		before = row.Hash
	}
	if head := sqlite3(t, path, "SELECT n || ' ' || hash FROM audit_head"); head != fmt.Sprintf("%d %s", len(rows), before) {
		t.Errorf("the head is %s", head)
	}
}

// TestAuditLogIsAppendOnly: not even the real sqlite3 command may change or
// remove a row.
func TestAuditLogIsAppendOnly(t *testing.T) {
	t.Parallel()
	_, path := busyLog(t)
	for _, statement := range []string{
		"UPDATE acts SET who = 'x' WHERE n = 2", "DELETE FROM acts WHERE n = 2", "DELETE FROM acts",
		"UPDATE act_texts SET reason = 'x'", "UPDATE places SET run = 'x'",
		"DELETE FROM places", "DELETE FROM audit_log",
	} {
		if out, err := tool(t, "sqlite3", path, statement).CombinedOutput(); err == nil {
			t.Errorf("%s succeeded: %s", statement, out)
		}
	}
}

// TestTamperingIsFound changes the log in every possible way past the triggers,
// and checks that verify finds the change.
func TestTamperingIsFound(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	for name, statement := range map[string]string{
		"changed":            "UPDATE acts SET who = 'uid:7' WHERE n = 3",
		"another owner":      "UPDATE places SET owner = 'uid:7' WHERE owner = 'uid:1001'",
		"another place":      "UPDATE places SET run = 'x' WHERE run = 'main'",
		"another word":       "UPDATE acts SET action = 'delete' WHERE action = 'restore'",
		"changed detail":     "UPDATE act_texts SET detail = replace(detail, '{}', '{ }') WHERE n = (SELECT max(n) FROM act_texts)",
		"texts gone":         "DELETE FROM act_texts WHERE n = (SELECT max(n) FROM act_texts)",
		"another secret":     "UPDATE meta SET value = 'x' WHERE key = 'chain_key'",
		"one row gone":       "DELETE FROM acts WHERE n = 3",
		"last rows gone":     "DELETE FROM acts WHERE n > 5",
		"emptied":            "DELETE FROM acts",
		"changed and linked": "UPDATE acts SET pid = 7, hash = zeroblob(32) WHERE n = 3",
		"swapped":            "UPDATE acts SET n = -1 WHERE n = 3; UPDATE acts SET n = 3 WHERE n = 4; UPDATE acts SET n = 4 WHERE n = -1",
		"another time":       "UPDATE acts SET at = at + 1 WHERE n = 3",
	} {
		t.Run(name, func(t *testing.T) {
			s, path := busyLog(t)
			must(t, s.Close())
			forge(t, path, statement)
			report, err := audit.Verify(t.Context(), path, nil)
			must(t, err)
			if len(report.Problems) == 0 {
				t.Error("the tampering was not found")
			}
			atTheEnd := slices.Contains([]string{"last rows gone", "emptied"}, name)
			if atTheEnd && !slices.ContainsFunc(report.Problems, func(p audit.Problem) bool { return strings.Contains(p.Detail, "rows are missing or were changed") }) {
				t.Errorf("verify itself does not compare the end with the head: %v", report.Problems)
			}
		})
	}
}

// TestAChangedRowThatWasHashedAnewIsFound: a changed row with a matching hash
// does not fit the next row.
func TestAChangedRowThatWasHashedAnewIsFound(t *testing.T) {
	t.Parallel()
	s, path := busyLog(t)
	must(t, s.Close())
	forge(t, path, "UPDATE acts SET pid = 7 WHERE n = 3")
	sum := sha256.Sum256([]byte(sqlite3(t, "-readonly", path, "SELECT input FROM audit_chain WHERE n = 3")))
	forge(t, path, fmt.Sprintf("UPDATE acts SET hash = x'%x' WHERE n = 3", sum))
	report, err := audit.Verify(t.Context(), path, nil)
	must(t, err)
	if !slices.Equal(report.Problems, []audit.Problem{{Rule: "audit_chain", Subject: "row 4", Detail: "its hash does not match its contents"}}) {
		t.Errorf("verify itself does not find it: %v", report.Problems)
	}
}

// TestWhatIsRecorded: the log records administrators' reads, refusals that
// never reached the store, and the daemon's start, each with the caller.
func TestWhatIsRecorded(t *testing.T) {
	t.Parallel()
	s, path := busyLog(t)
	sc, err := root.Caller.For("uid:1001")
	must(t, err)
	page, err := s.Checkpoints(t.Context(), sc, ckpt.CheckpointFilter{Agent: "a"})
	must(t, err)
	_, err = s.Checkpoint(t.Context(), root, page.Checkpoints[0].ID, true)
	must(t, err)
	_, err = s.Latest(t.Context(), sc, ckpt.CheckpointFilter{Agent: "a"}, true)
	must(t, err)
	_, err = s.Policy(t.Context(), sc, "a")
	must(t, err)
	_, err = s.Agents(t.Context(), root, ckpt.AgentFilter{})
	must(t, err)
	_, err = s.Audit(t.Context(), root, ckpt.AuditFilter{})
	must(t, err)
	must(t, s.Export(t.Context(), sc, "a", &bytes.Buffer{}))
	s.Refused(t.Context(), ann, ckpt.Refusal{Action: "save", Agent: "a", Code: ckpt.CodeTooLarge, Reason: "over the limit"})
	for where, want := range map[string]string{
		"who = 'uid:0' AND action = 'admin_list' AND owner = 'uid:1001' AND agent = 'a' AND pid = 10": "1",
		"who = 'uid:0' AND action = 'admin_read' AND owner = 'uid:1001'":                              "1", // the second is counted
		"who = 'uid:0' AND action = 'admin_read_policy' AND owner = 'uid:1001'":                       "1",
		"who = 'uid:0' AND action = 'admin_list_agents'":                                              "1",
		"who = 'uid:0' AND action = 'admin_read_audit'":                                               "1",
		"who = 'uid:0' AND action = 'export' AND owner = 'uid:1001'":                                  "1",
		"outcome = 'too_large' AND reason = 'over the limit' AND owner = 'uid:1001'":                  "1",
		"action = 'restore' AND outcome = 'not_found' AND who = 'uid:1002' AND owner = 'uid:1002'":    "1",
		"action = 'start' AND who = 'daemon'":                                                         "1",
		"json_array_length(removed) = 1 AND json_extract(removed, '$[0].reason') IS NOT NULL":         "2",
	} {
		if got := sqlite3(t, path, "SELECT count(*) FROM audit_log WHERE "+where); got != want {
			t.Errorf("%s rows are recorded, %s expected, where %s", got, want, where)
		}
	}
	sound(t, path)
}

// TestAuditPages pages through the log. A user sees only his own rows.
func TestAuditPages(t *testing.T) {
	t.Parallel()
	s, _ := busyLog(t)
	save(t, s, bob, "a", ckpt.KindRoutine, `1`)
	var got []int64
	for after := int64(0); ; {
		page, err := s.Audit(t.Context(), ann, ckpt.AuditFilter{After: after, Limit: 3})
		must(t, err)
		for _, row := range page.Audit {
			if row.Owner != "uid:1001" {
				t.Errorf("ann sees %+v", row)
			}
			got = append(got, row.N)
		}
		if page.Next == nil {
			break
		}
		after = *page.Next
	}
	all, err := s.Audit(t.Context(), ann, ckpt.AuditFilter{Limit: ckpt.MaxLimit})
	must(t, err)
	if len(got) != len(all.Audit) || len(got) < 7 {
		t.Errorf("%d rows by pages, %d at once", len(got), len(all.Audit))
	}
	saves, err := s.Audit(t.Context(), ann, ckpt.AuditFilter{Agent: "a", Action: "save"})
	must(t, err)
	if len(saves.Audit) != 5 {
		t.Errorf("%d saves", len(saves.Audit))
	}
	_, err = s.Audit(t.Context(), ann, ckpt.AuditFilter{Agent: "../x"})
	wantCode(t, err, ckpt.CodeInvalid)
	_, err = s.Audit(t.Context(), ann, ckpt.AuditFilter{Limit: ckpt.MaxLimit + 1})
	wantCode(t, err, ckpt.CodeInvalid)
}

// TestCanary puts a secret into everything that an agent can send. It must be
// in no audit row and in no error.
func TestCanary(t *testing.T) {
	t.Parallel()
	const canary = "sk-canary-4711"
	s, path := busyLog(t)
	r := func() *ckpt.SaveRequest {
		r := request("a", ckpt.KindRecovery, `{"key":"`+canary+`"}`)
		r.Labels, r.Metadata = ckpt.Labels{"token": canary}, []byte(`{"k":"`+canary+`"}`)
		r.Program = &ckpt.Program{Source: canary}
		return r
	}
	c, err := s.Save(t.Context(), ann, r())
	must(t, err)
	pinned := true
	_, err = s.Patch(t.Context(), ann, c.ID, ckpt.CheckpointPatch{Labels: &ckpt.Labels{"token": canary, "b": canary}, Pinned: &pinned})
	must(t, err)
	_, _, err = s.Restore(t.Context(), ann, ckpt.RestoreRequest{Agent: "a", Checkpoint: c.ID})
	must(t, err)
	var out bytes.Buffer
	must(t, s.Export(t.Context(), ann, "a", &out))
	_, err = s.Import(t.Context(), bob, ckpt.ImportRequest{}, &out)
	must(t, err)
	for name, change := range map[string]func(*ckpt.SaveRequest){
		"state":    func(r *ckpt.SaveRequest) { r.State = []byte(`{"a":"` + canary + `",}`) },
		"metadata": func(r *ckpt.SaveRequest) { r.Metadata = []byte(`["` + canary + `"]`) },
		"broken":   func(r *ckpt.SaveRequest) { r.Metadata = []byte(`{"a":` + canary + `}`) },
		"label":    func(r *ckpt.SaveRequest) { r.Labels = ckpt.Labels{"a": canary + "\x00"} },
		"parent":   func(r *ckpt.SaveRequest) { r.Parent = ckpt.Ref(newID(t)) },
		"epoch":    func(r *ckpt.SaveRequest) { r.Epoch = new(int64) },
		"program":  func(r *ckpt.SaveRequest) { r.Program.Executed = 1000 },
		"key":      func(r *ckpt.SaveRequest) { r.ID = c.ID },
	} {
		bad := r()
		change(bad)
		_, err := s.Save(t.Context(), ann, bad)
		if err == nil || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := sqlite3(t, path, "SELECT count(*) FROM audit_log WHERE audit_log.detail || coalesce(reason, '') || coalesce(subject, '') LIKE '%canary%'"); got != "0" {
		t.Errorf("the canary stands in %s audit rows: %s", got, sqlite3(t, path, "SELECT action, detail FROM audit_log WHERE detail LIKE '%canary%'"))
	}
}

// TestOwnersWithTheSameIDs: two owners can have checkpoints with the same ids, from the same export.
// A change by one is none of the other's, also after an agent got another owner. Otherwise verify
// would call the other's checkpoint changed, and no backup could be made.
func TestOwnersWithTheSameIDs(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	id := save(t, s, ann, "a", ckpt.KindRoutine, `1`).ID
	_, err := s.Import(t.Context(), bob, ckpt.ImportRequest{}, strings.NewReader(exportOf(t, s, "a")))
	must(t, err)
	change := func(sc ckpt.Scope, label string, pinned bool) {
		t.Helper()
		_, err := s.Patch(t.Context(), sc, id, ckpt.CheckpointPatch{Labels: &ckpt.Labels{"of": label}, Pinned: &pinned})
		must(t, err)
	}
	change(bob, "bob", true)
	sound(t, path)
	change(ann, "ann", false)
	sound(t, path)
	_, _, err = s.Chown(t.Context(), root, ckpt.ChownRequest{From: bob.Owner, To: "uid:1003", Agent: "a", Force: true}, "")
	must(t, err)
	sound(t, path)
	change(ann, "ann again", true)
	sound(t, path)
	must(t, s.Close())
	forge(t, path, `UPDATE checkpoints SET pinned = 1 - pinned WHERE run_id = 2;`)
	report, err := audit.Verify(t.Context(), path, nil)
	must(t, err)
	if len(report.Problems) != 1 || report.Problems[0].Rule != "audit_row" {
		t.Errorf("a change that no row records: %v", report.Problems)
	}
}

// TestARunThatComesBackIsSound: a run that was deleted and imported again can have other labels and
// pins than it had last. The row of the import records those. A change that no row records is still
// found, and so is one from before the import.
func TestARunThatComesBackIsSound(t *testing.T) {
	t.Parallel()
	for name, forged := range map[string]string{
		"its labels differ": `UPDATE checkpoints SET labels = '{"x":"2"}';`,
		"it was pinned":     `UPDATE checkpoints SET pinned = 0;`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "ckpt.db")
			s := openWith(t, options(path, newClock()))
			id := save(t, s, ann, "a", ckpt.KindRoutine, `1`).ID
			change := func(label string, pinned bool) {
				t.Helper()
				_, err := s.Patch(t.Context(), ann, id, ckpt.CheckpointPatch{Labels: &ckpt.Labels{"x": label}, Pinned: &pinned})
				must(t, err)
			}
			change("1", true)
			exported := exportOf(t, s, "a")
			change("2", false)
			_, err := s.DeleteRun(t.Context(), ckpt.Scope{Caller: root.Caller, Target: ann.Owner}, mainRun, true)
			must(t, err)
			_, err = s.Import(t.Context(), ann, ckpt.ImportRequest{}, strings.NewReader(exported))
			must(t, err)
			sound(t, path)
			must(t, s.Close())
			forge(t, path, forged)
			report, err := audit.Verify(t.Context(), path, nil)
			must(t, err)
			if len(report.Problems) != 1 || !strings.HasPrefix(report.Problems[0].Detail, name) {
				t.Errorf("what was changed before the import, and no row records after it: %v", report.Problems)
			}
			s = openWith(t, options(path, newClock()))
			change("3", false)
			sound(t, path)
		})
	}
}

// TestAnImportBesideItsOriginIsSound: the checks of the database keep apart what two owners have
// under the same ids: the pieces of a state, and the place of a checkpoint in its run.
func TestAnImportBesideItsOriginIsSound(t *testing.T) {
	t.Parallel()
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
	s := openWith(t, o)
	var ids []string
	for i := range 3 { // as many as the policy keeps, with states in pieces
		saved, err := s.Save(t.Context(), ann, binary("a", ckpt.KindRoutine, noise(uint64(i), 60_000)))
		must(t, err)
		ids = append(ids, saved.ID)
	}
	_, err := s.Import(t.Context(), bob, ckpt.ImportRequest{}, strings.NewReader(exportOf(t, s, "a")))
	must(t, err)
	sound(t, o.Path)
	pinned := true
	for _, id := range ids {
		_, err := s.Patch(t.Context(), bob, id, ckpt.CheckpointPatch{Pinned: &pinned})
		must(t, err)
	}
	save(t, s, bob, "a", ckpt.KindRoutine, `1`)
	sound(t, o.Path)
}
