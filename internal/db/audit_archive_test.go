package db_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/audit"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// logOf returns what the views show of each row of the audit log.
func logOf(t *testing.T, path string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, query := range []string{
		`SELECT n || ' ' || json_array(at, who, pid, action, owner, agent, run, subject, outcome, reason, retries, detail, prev, hash, removed) FROM audit_log`,
		`SELECT n || ' removed ' || json_array(at, who, owner, agent, run, id, kind, seq, reason) FROM audit_removals`,
	} {
		for line := range strings.Lines(sqlite3(t, "-readonly", path, query)) {
			n, rest, _ := strings.Cut(line, " ")
			all[n] += strings.TrimSpace(rest)
		}
	}
	return all
}

// busy lets agents make requests that leave all kinds of rows in the audit log.
func busy(t *testing.T, s *db.Store, round int) {
	t.Helper()
	for i := range 60 {
		agent := fmt.Sprint("agent", i%3)
		saved, err := s.Save(t.Context(), ann, request(agent, ckpt.KindRoutine, fmt.Sprintf(`{"round":%d,"i":%d}`, round, i)))
		must(t, err)
		if i%20 == 0 {
			pinned := true
			_, err = s.Patch(t.Context(), ann, saved.ID, ckpt.CheckpointPatch{Pinned: &pinned, Labels: &ckpt.Labels{"round": fmt.Sprint(round)}})
			must(t, err)
		}
	}
	gone := fmt.Sprint("gone", round)
	_, err := s.Save(t.Context(), bob, request(gone, ckpt.KindRecovery, `{}`))
	must(t, err)
	_, err = s.Erase(t.Context(), bob, gone)
	must(t, err)
}

func flawless(t *testing.T, path string) *audit.VerifyReport {
	t.Helper()
	report, err := audit.Verify(t.Context(), path, nil)
	must(t, err)
	if len(report.Problems) > 0 {
		t.Errorf("%s: %v", filepath.Base(path), report.Problems)
	}
	if got := sqlite3(t, "-readonly", path, `SELECT * FROM audit_violations`); got != "" {
		t.Errorf("%s: %s", filepath.Base(path), got)
	}
	return report
}

// TestTheAuditLogGrowsOld archives the log three times while agents continue.
// The database or an archive shows of each row what the views showed before.
// The chain is intact from the first archive to the last row, and repeated
// saves are still replayed.
func TestTheAuditLogGrowsOld(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	folder, c := t.TempDir(), newClock()
	path := filepath.Join(folder, "ckpt.db")
	s := openWith(t, options(path, c))
	told := map[string]string{}
	var archives []string
	for round := range 3 {
		busy(t, s, round)
		c.add(20 * 24 * time.Hour)
		busy(t, s, 10+round)
		recent := request("agent0", ckpt.KindRoutine, `{"recent":1}`)
		recent.ID = newID(t)
		first, err := s.Save(t.Context(), ann, recent)
		must(t, err)

		for n, row := range logOf(t, path) {
			if _, is := told[n]; !is {
				told[n] = row
			}
		}
		a, err := audit.Archive(t.Context(), path, folder, c.Now(), c.Now().Add(-10*24*time.Hour), nil)
		must(t, err)
		if again, err := audit.Archive(t.Context(), path, folder, c.Now(), c.Now().Add(-10*24*time.Hour), nil); err != nil || *again != *a {
			t.Fatalf("an archive that was made and not recorded is made as %+v, %v; it was %+v", again, err, a)
		}
		done := archived(t, s, folder, c.Now().Add(-10*24*time.Hour))
		if done.AuditArchive != *a || done.Folder != folder {
			t.Errorf("%+v was made, not %+v", done, a)
		}
		if done.Removed < (a.ToN-a.FromN)/2 {
			t.Errorf("only %d of the rows %d to %d went", done.Removed, a.FromN, a.ToN)
		}
		archives = slices.Insert(archives, 0, filepath.Join(folder, a.Name))
		flawless(t, path)
		all := map[string]string{}
		for _, name := range append([]string{path}, archives...) { // newest first: an archive also has some earlier rows
			flawless(t, name)
			maps.Copy(all, logOf(t, name))
		}
		for n := range told {
			if all[n] != told[n] {
				t.Errorf("row %s was told as %s\nand is told as %s", n, told[n], all[n])
			}
		}
		if missing := len(told) - len(all); missing > 0 {
			t.Errorf("%d rows are told nowhere", missing)
		}
		again, err := s.Save(t.Context(), ann, recent)
		must(t, err)
		if diff := cmp.Diff(first.Pruned, again.Pruned); diff != "" || !again.Replayed || again.Parent != first.Parent {
			t.Errorf("a save of before the archive is answered otherwise: %s", diff)
		}
		reports, err := audit.VerifyArchives(t.Context(), path, folder, nil, nil)
		must(t, err)
		for i, report := range reports {
			if len(report.Problems) > 0 || i == round && report.AuditHead != a.Hash {
				t.Errorf("archive %d: %+v", i, report)
			}
		}
	}
	rows := sqlite3(t, "-readonly", path, `SELECT count(*) FROM acts`)
	if n := sqlite3(t, "-readonly", path, `SELECT n FROM audit_head`); len(rows) >= len(n) && rows > n {
		t.Errorf("%s rows of %s are left", rows, n)
	}
	must(t, s.Close())
	s = openWith(t, options(path, c)) // a start finds no problem
	if st, err := s.Status(t.Context(), root); err != nil || len(st.Problems) > 0 {
		t.Errorf("%+v, %v", st.Problems, err)
	}
	busy(t, s, 20)
	flawless(t, path)
}

// TestArchiveOfAnErasedAgent archives rows whose texts an erasure removed. The
// erasure itself is too young to be archived with them. The archive passes
// verify, and verify still notices a text that was removed without an erasure.
func TestArchiveOfAnErasedAgent(t *testing.T) {
	t.Parallel()
	folder, c := t.TempDir(), newClock()
	path := filepath.Join(folder, "ckpt.db")
	s := openWith(t, options(path, c))
	busy(t, s, 1)
	c.add(30 * 24 * time.Hour)
	_, err := s.Erase(t.Context(), ann, "agent0")
	must(t, err)
	a := archived(t, s, folder, c.Now().Add(-10*24*time.Hour))
	flawless(t, path)
	archive := filepath.Join(folder, a.Name)
	flawless(t, archive)
	if out, err := edit(t, archive, `DELETE FROM act_texts WHERE n IN (SELECT a.n FROM acts a JOIN places p ON p.id = a.place WHERE p.agent = 'agent1')`); err != nil {
		t.Fatal(out)
	}
	report, err := audit.Verify(t.Context(), archive, nil)
	must(t, err)
	if !slices.ContainsFunc(report.Problems, func(p audit.Problem) bool { return p.Rule == "audit_text" }) {
		t.Errorf("texts that nobody erased are not missed: %v", report.Problems)
	}
}

// archived has the rows from before a time archived into a folder.
func archived(t *testing.T, s *db.Store, folder string, before time.Time) *ckpt.AuditArchived {
	t.Helper()
	s.ArchiveInto(folder, 0o700)
	done, err := s.ArchiveAudit(t.Context(), root, ckpt.ArchiveRequest{Before: ckpt.At(before)})
	must(t, err)
	return done
}

// TestArchivesThatAreRefused: rows are removed only for an administrator, in order, if they are old enough, and if the file that has
// them is whole. Nobody's word is enough, not even an administrator's.
func TestArchivesThatAreRefused(t *testing.T) {
	t.Parallel()
	folder, c := t.TempDir(), newClock()
	path := filepath.Join(folder, "ckpt.db")
	s := openWith(t, options(path, c))
	busy(t, s, 1)
	c.add(30 * 24 * time.Hour)
	busy(t, s, 2)
	before := c.Now().Add(-9 * 24 * time.Hour)
	good, err := audit.Archive(t.Context(), path, folder, c.Now(), before, nil)
	must(t, err)
	s.ArchiveInto(folder, 0o700)
	for name, try := range map[string]struct {
		sc     ckpt.Scope
		before time.Time
		code   ckpt.Code
	}{
		"not an administrator": {ann, before, ckpt.CodeDenied},
		"for an owner":         {ckpt.Scope{Caller: root.Caller, Target: ann.Owner}, before, ckpt.CodeDenied},
		"too young":            {root, c.Now().Add(-7 * 24 * time.Hour), ckpt.CodeInvalid},
		"no time":              {root, time.Time{}, ckpt.CodeInvalid},
	} {
		if _, err := s.ArchiveAudit(t.Context(), try.sc, ckpt.ArchiveRequest{Before: ckpt.At(try.before)}); ckpt.CodeOf(err) != try.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, try := range map[string]struct {
		edit func(*ckpt.AuditArchive)
		code ckpt.Code
	}{
		"another hash": {func(a *ckpt.AuditArchive) { a.Hash = strings.Repeat("0", 64) }, ckpt.CodeConflict},
		"too young":    {func(a *ckpt.AuditArchive) { a.ToN, a.Hash = lastRow(t, path) }, ckpt.CodeInvalid},
		"a gap":        {func(a *ckpt.AuditArchive) { a.FromN = 2 }, ckpt.CodeConflict},
	} {
		a := *good
		try.edit(&a)
		if err := s.RecordArchive(t.Context(), ledger.Entry(root, "archive_audit", ""), a); ckpt.CodeOf(err) != try.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	file := filepath.Join(folder, good.Name)
	whole, err := os.ReadFile(file)
	must(t, err)
	for name, forge := range map[string]func(){
		"empty":   func() { must(t, os.WriteFile(file, nil, 0o600)) },
		"cut":     func() { must(t, os.WriteFile(file, whole[:len(whole)/2], 0o600)) },
		"no rows": func() { _, _ = edit(t, file, `DROP TRIGGER acts_are_never_removed; DELETE FROM acts`) },
		"a row": func() {
			_, _ = edit(t, file, `DROP TRIGGER acts_are_never_changed; UPDATE acts SET pid = 1 WHERE n = 3`)
		},
		"a text": func() {
			_, _ = edit(t, file, `DROP TRIGGER act_texts_are_never_changed; UPDATE act_texts SET reason = 'x'`)
		},
		"the first": func() { _, _ = edit(t, file, `DROP TRIGGER acts_are_never_removed; DELETE FROM acts WHERE n = 1`) },
	} {
		must(t, os.WriteFile(file, whole, 0o600))
		forge()
		if done, err := s.ArchiveAudit(t.Context(), root, ckpt.ArchiveRequest{Before: ckpt.At(before)}); err == nil {
			t.Errorf("a file that was there, %s: %+v", name, done)
		}
	}
	must(t, os.Remove(file))
	for _, statement := range []string{
		`DELETE FROM acts WHERE n = 1`, `UPDATE audit_archives SET to_n = 9`, `DELETE FROM audit_archives`, `UPDATE audit_links SET hash = ''`,
		`INSERT INTO audit_archives (to_n, from_n, hash, name, sha256, bytes, at, who) VALUES (9, 3, '', '', '', 1, '', '')`,
	} {
		if out, err := edit(t, path, statement); err == nil && !strings.Contains(statement, "UPDATE") && !strings.Contains(statement, "FROM audit_archives") {
			t.Errorf("%s was taken: %s", statement, out)
		}
	}
	flawless(t, path)
	if n := sqlite3(t, "-readonly", path, `SELECT count(*) FROM audit_archives`); n != "0" {
		t.Errorf("%s archives are recorded", n)
	}
	// The folder does not exist; the time is too recent.
	if _, err := audit.Archive(t.Context(), path, filepath.Join(folder, "none"), c.Now(), c.Now().Add(-10*24*time.Hour), nil); err == nil {
		t.Error("a folder that is not there was taken")
	}
	if _, err := audit.Archive(t.Context(), path, folder, c.Now(), c.Now(), nil); ckpt.CodeOf(err) != ckpt.CodeInvalid {
		t.Errorf("rows of today: %v", err)
	}
}

func lastRow(t *testing.T, path string) (n int64, hash string) {
	t.Helper()
	line := sqlite3(t, "-readonly", path, `SELECT (n - 1) || ' ' || (SELECT lower(hex(hash)) FROM acts WHERE n = h.n - 1) FROM audit_head h`)
	_, err := fmt.Sscan(line, &n, &hash)
	must(t, err)
	return n, hash
}

// TestForgedArchivesAreFound: verify finds rows that were removed by hand in
// the name of an archive, an archive that was changed, and an archive that is
// missing.
func TestForgedArchivesAreFound(t *testing.T) {
	t.Parallel()
	folder, c := t.TempDir(), newClock()
	path := filepath.Join(folder, "ckpt.db")
	s := openWith(t, options(path, c))
	busy(t, s, 1)
	c.add(30 * 24 * time.Hour)
	busy(t, s, 2)
	a := archived(t, s, folder, c.Now().Add(-9*24*time.Hour))
	must(t, s.Close())
	copyTo := func(name string) string {
		bytes, err := os.ReadFile(path)
		must(t, err)
		out := filepath.Join(folder, name+".db")
		must(t, os.WriteFile(out, bytes, 0o600))
		return out
	}
	for name, statement := range map[string]string{
		"more rows than were archived": fmt.Sprintf(`DROP TRIGGER acts_are_never_removed; INSERT OR REPLACE INTO audit_links SELECT n, lower(hex(hash)) FROM acts WHERE n = %[1]d; DELETE FROM acts WHERE n BETWEEN %[2]d AND %[1]d`, a.ToN+5, a.ToN+1),
		"an archive that nobody made":  fmt.Sprintf(`INSERT INTO audit_archives SELECT %d, %d, lower(hex(hash)), 'x', 'y', 1, '', '' , 0 FROM acts WHERE n = %[1]d`, a.ToN+3, a.ToN+1),
		"another link":                 fmt.Sprintf(`DROP TRIGGER audit_links_are_never_changed; UPDATE audit_links SET hash = '%064d' WHERE n = %d`, 0, a.ToN),
		"no link":                      fmt.Sprintf(`DELETE FROM audit_links WHERE n = %d`, a.ToN),
	} {
		forged := copyTo(strings.ReplaceAll(name, " ", "-"))
		if out, err := edit(t, forged, statement); err != nil {
			t.Fatalf("%s: %s", name, out)
		}
		report, err := audit.Verify(t.Context(), forged, nil)
		must(t, err)
		if !slices.ContainsFunc(report.Problems, func(p audit.Problem) bool { return strings.HasPrefix(p.Rule, "audit_") }) {
			t.Errorf("%s: nothing was found: %v", name, report.Problems)
		}
	}
	archive := filepath.Join(folder, a.Name)
	if out, err := edit(t, archive, `INSERT INTO meta VALUES ('note', 'x')`); err != nil {
		t.Fatal(out)
	}
	if reports, err := audit.VerifyArchives(t.Context(), path, folder, nil, nil); err != nil || len(reports) != 1 || len(reports[0].Problems) != 1 {
		t.Errorf("an archive that is another file: %+v, %v", reports, err)
	}
	if out, err := edit(t, archive, `DROP TRIGGER acts_are_never_changed; UPDATE acts SET pid = pid + 1 WHERE n = 3`); err != nil {
		t.Fatal(out)
	}
	reports, err := audit.VerifyArchives(t.Context(), path, folder, nil, nil)
	must(t, err)
	if len(reports) != 1 || len(reports[0].Problems) < 2 {
		t.Errorf("an archive that was changed: %+v", reports)
	}
	must(t, os.Remove(archive))
	if reports, err = audit.VerifyArchives(t.Context(), path, folder, nil, nil); err != nil || len(reports) != 1 || len(reports[0].Problems) != 1 {
		t.Errorf("an archive that is gone: %+v, %v", reports, err)
	}
}

// edit changes a database as a person with access to the file does.
func edit(t testing.TB, path, statements string) (string, error) {
	t.Helper()
	out, err := tool(t, "sqlite3", "-bail", path, statements).CombinedOutput()
	return string(out), err
}
