package db_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// act fills a store with acts of all forms and returns the path of the closed
// file.
func act(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	for i, odd := range []string{"plain", `quo"te\`, "a<b>&c", "\n\t\x00\x01\x1f\x7f", "ü ☃ 😀", "\u2028\u2029", "it's 100 % 'quoted'", strings.Repeat("x", 300)} {
		r := request("a", ckpt.Kinds[i%3], fmt.Sprintf("[%d]", i))
		r.ID, r.Run, r.Labels, r.Step = uuid.Must(uuid.NewV7()).String(), fmt.Sprintf("r%d", i%2), ckpt.Labels{"k": "v"}, ckpt.Ref(fmt.Sprint("s", i))
		_, err := s.Save(t.Context(), ann, r)
		must(t, err)
		c := save(t, s, ann, "a", ckpt.KindRoutine, fmt.Sprintf("[%d]", i))
		_, _, err = s.Restore(t.Context(), ann, ckpt.RestoreRequest{Agent: "a", Checkpoint: c.ID, Reason: odd})
		if err != nil && ckpt.CodeOf(err) != ckpt.CodeInvalid { // because of a control character
			t.Fatal(err)
		}
		_, _, err = s.BeginStep(t.Context(), ann, ckpt.RunRef{Agent: "a"}, ckpt.StepRequest{Key: fmt.Sprint("k", i), Name: odd})
		if err != nil && ckpt.CodeOf(err) != ckpt.CodeInvalid {
			t.Fatal(err)
		}
	}
	_, err := s.Delete(t.Context(), ann, uuid.Must(uuid.NewV7()).String())
	wantCode(t, err, ckpt.CodeNotFound)
	p := ckpt.DefaultPolicy()
	p.RoutineKeep = 1
	_, err = s.SetPolicy(t.Context(), ann, "a", p)
	must(t, err)
	shut(t, s)
	return path
}

// TestStockSQLiteChecksTheChain hashes every row of audit_chain, as the stock
// command prints it, with SHA-256: the result is the stored hash.
func TestStockSQLiteChecksTheChain(t *testing.T) {
	path := act(t)
	for _, view := range []string{"audit_chain", "audit_texts"} {
		var rows []struct {
			N           int64
			Input, Hash string
		}
		must(t, json.Unmarshal([]byte(sqlite3(t, "-readonly", "-json", path, "SELECT n, hex(input) AS input, hash FROM "+view)), &rows))
		if len(rows) < 10 {
			t.Errorf("%s has %d rows", view, len(rows))
		}
		for _, row := range rows {
			input, err := hex.DecodeString(row.Input)
			must(t, err)
			if sum := sha256.Sum256(input); hex.EncodeToString(sum[:]) != row.Hash {
				t.Errorf("%s row %d: %s does not hash to %s", view, row.N, input, row.Hash)
			}
		}
	}
	sound(t, path)
	if got := sqlite3(t, "-readonly", path, "SELECT * FROM audit_violations"); got != "" {
		t.Error(got)
	}
}

// TestASaveSaysWhatWent: removals are recorded in the row of the save that
// caused them, or in separate rows, and each is in audit_removals.
func TestASaveSaysWhatWent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	var ids []string
	for i := range 5 {
		ids = append(ids, save(t, s, ann, "a", ckpt.KindRoutine, fmt.Sprint(i)).ID)
	}
	p := ckpt.DefaultPolicy()
	p.RoutineKeep = 1
	_, err := s.SetPolicy(t.Context(), ann, "a", p)
	must(t, err)
	page, err := s.Audit(t.Context(), root, ckpt.AuditFilter{Action: "remove"})
	must(t, err)
	gone := map[string]string{}
	for _, row := range page.Audit {
		var list []struct {
			ID, Kind, Reason string
			Seq              int
		}
		must(t, json.Unmarshal(row.Removed, &list))
		for _, r := range list {
			gone[r.ID] = fmt.Sprint(row.Action, " ", r.Kind, " ", r.Seq, ", ", r.Reason)
		}
	}
	want := map[string]string{
		ids[0]: "save routine 1, not among the newest 3 routine checkpoints", ids[1]: "save routine 2, not among the newest 3 routine checkpoints",
		ids[2]: "remove routine 3, not the newest routine checkpoint", ids[3]: "remove routine 4, not the newest routine checkpoint",
	}
	if diff := cmp.Diff(want, gone); diff != "" {
		t.Error(diff)
	}
	var rows []string
	must(t, s.RO.Select(&rows, `SELECT id || ' ' || kind || ' ' || seq || ', ' || reason || ' by ' || who || ' of ' || agent || '/' || run FROM audit_removals ORDER BY seq`))
	if len(rows) != 4 || rows[0] != ids[0]+" routine 1, not among the newest 3 routine checkpoints by uid:1001 of a/main" {
		t.Errorf("%q", rows)
	}
}

// TestNobodyCountsOthersWrites: for a caller who is not an administrator, the
// rows of the log have numbers of his own, in an order of their own, and no
// hash. Paging works.
func TestNobodyCountsOthersWrites(t *testing.T) {
	s, _ := open(t)
	for i := range 6 {
		save(t, s, ann, "a", ckpt.KindRoutine, fmt.Sprint(i))
		save(t, s, bob, "b", ckpt.KindRoutine, fmt.Sprint(i))
	}
	var seen []int64
	subjects := map[ckpt.Ref]bool{}
	for after := int64(0); ; {
		page, err := s.Audit(t.Context(), ann, ckpt.AuditFilter{After: after, Limit: 2})
		must(t, err)
		for _, row := range page.Audit {
			if row.Hash != "" || row.Prev != "" || row.Owner != "uid:1001" {
				t.Errorf("%+v", row)
			}
			seen, subjects[row.Subject] = append(seen, row.N), true
		}
		if page.Next == nil {
			break
		}
		after = *page.Next
	}
	if len(seen) != 6 || len(subjects) != 6 {
		t.Errorf("%v", seen)
	}
	for i := 1; i < len(seen); i++ {
		if d := seen[i] - seen[i-1]; d > -1000 && d < 1000 {
			t.Errorf("%v tells how many rows lie between", seen)
		}
	}
	page, err := s.Audit(t.Context(), root, ckpt.AuditFilter{})
	must(t, err)
	if page.Audit[0].N != 1 || page.Audit[0].Hash == "" {
		t.Errorf("%+v", page.Audit[0])
	}
}

// TestCursorsCountNobodysWrites walks lists page by page, and checks that
// cursors contain no row numbers: two successive numbers would tell how much
// other owners write.
func TestCursorsCountNobodysWrites(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	ref := ckpt.RunRef{Agent: "a"}
	for i := range 4 {
		save(t, s, ann, "a", ckpt.KindRecovery, fmt.Sprint(i))
		save(t, s, bob, "b", ckpt.KindRecovery, fmt.Sprint(i))
		for sc, agent := range map[string]string{ann.Owner: "a", bob.Owner: "b"} {
			_, _, err := s.BeginStep(t.Context(), ckpt.Scope{Caller: ckpt.Caller{Owner: sc}}, ckpt.RunRef{Agent: agent}, ckpt.StepRequest{Key: fmt.Sprint("k", i), Name: "n"})
			must(t, err)
		}
	}
	for name, next := range map[string]func(before string) (int, ckpt.Ref, error){
		"checkpoints": func(before string) (int, ckpt.Ref, error) {
			page, err := s.Checkpoints(t.Context(), ann, ckpt.CheckpointFilter{Agent: "a", Before: before, Limit: 1})
			must(t, err)
			return len(page.Checkpoints), page.Next, err
		},
		"steps": func(before string) (int, ckpt.Ref, error) {
			page, err := s.Steps(t.Context(), ann, ref, ckpt.ListFilter{Before: before, Limit: 1})
			must(t, err)
			return len(page.Steps), page.Next, err
		},
	} {
		rows, before := 0, int64(0)
		for cursor := ""; ; {
			n, to, err := next(cursor)
			must(t, err)
			rows += n
			if to == "" {
				break
			}
			number, err := strconv.ParseInt(string(to), 36, 64)
			must(t, err)
			if d := number - before; d > -1000 && d < 1000 {
				t.Errorf("%s: %d follows %d", name, number, before)
			}
			cursor, before = string(to), number
		}
		if rows != 4 {
			t.Errorf("%d %s", rows, name)
		}
	}
}

// TestErasedTextsAreGone: after an agent was erased, the files of the database
// contain no text that was entered about it.
func TestErasedTextsAreGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	const typed = "xyzzy-typed"
	c := save(t, s, ann, "a", ckpt.KindRoutine, `"`+typed+`-state"`)
	_, _, err := s.Restore(t.Context(), ann, ckpt.RestoreRequest{Agent: "a", Checkpoint: c.ID, Reason: typed + "-reason"})
	must(t, err)
	_, _, err = s.BeginStep(t.Context(), ann, ckpt.RunRef{Agent: "a"}, ckpt.StepRequest{Key: typed + "-key", Name: typed + "-name"})
	must(t, err)
	_, _, err = s.BeginOperation(t.Context(), ann, ckpt.RunRef{Agent: "a"}, ckpt.OperationRequest{Key: typed + "-op", Name: typed + "-opname"})
	must(t, err)
	p := ckpt.DefaultPolicy()
	p.Rules = append(p.Rules, ckpt.Rule{Name: typed + "-rule", When: "step.duration_ms > 1", Severity: ckpt.SeverityWarn})
	_, err = s.SetPolicy(t.Context(), ann, "a", p)
	must(t, err)
	_, err = s.Erase(t.Context(), ann, "a")
	must(t, err)
	shut(t, s)
	files, err := filepath.Glob(path + "*")
	must(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		if bytes.Contains(text, []byte(typed)) {
			t.Errorf("%s holds what was typed", file)
		}
	}
	sound(t, path)
}
