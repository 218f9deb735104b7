package db_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

// TestOwnersQuota fills one owner's quota: further saves are refused, the other
// owner continues to save, and a delete makes room again, even after a restart.
func TestOwnersQuota(t *testing.T) {
	t.Parallel()
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
	o.MaxOwnerBytes = 1 << 20
	s := openWith(t, o)
	var ids []string
	state := func(n int) *ckpt.SaveRequest { return binary("a", ckpt.KindRecovery, noise(uint64(n), 64<<10)) }
	fill := func() {
		t.Helper()
		for i := range 20 {
			saved, err := s.Save(t.Context(), ann, state(i))
			if err == nil {
				ids = append(ids, saved.ID)
				continue
			}
			wantCode(t, err, ckpt.CodeQuota)
			if e := ckpt.AsError(err); e.OutcomeOrDefault() != ckpt.OutcomeNotSaved {
				t.Errorf("the answer: %+v", e)
			}
			return
		}
		t.Fatalf("%d states of 64 KiB fit into 1 MiB", len(ids))
	}
	full := func() {
		t.Helper()
		_, err := s.Save(t.Context(), ann, state(99))
		wantCode(t, err, ckpt.CodeQuota)
	}
	fill()
	if len(ids) < 13 || len(ids) > 15 {
		t.Errorf("%d states of 64 KiB fit into 1 MiB", len(ids))
	}
	save(t, s, bob, "a", ckpt.KindRecovery, `"of another owner"`)
	must(t, s.Close())
	s = openWith(t, o)
	_, err := s.DeleteRun(t.Context(), ann, mainRun, true)
	wantCode(t, err, ckpt.CodeDenied)
	if rows, err := s.Audit(t.Context(), ann, ckpt.AuditFilter{Action: "delete_run", Outcome: "denied"}); err != nil || len(rows.Audit) != 1 {
		t.Errorf("a refusal of an owner without space has the rows %+v, %v", rows, err)
	}
	full()
	if _, err := s.Delete(t.Context(), ann, ids[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Save(t.Context(), ann, state(100)); err != nil {
		t.Fatal(err)
	}
	full()
	if _, err := s.Erase(t.Context(), ann, "a"); err != nil {
		t.Fatal(err)
	}
	ids = nil
	fill()
	if len(ids) < 13 {
		t.Errorf("after an erasure %d states fit", len(ids))
	}
	sound(t, o.Path)
}

// TestQuotaHoldsForImports: an import cannot exceed the quota.
func TestQuotaHoldsForImports(t *testing.T) {
	t.Parallel()
	from, _ := open(t)
	for i := range 20 {
		save(t, from, ann, "a", ckpt.KindRecovery, fmt.Sprintf(`"%d%s"`, i, strings.Repeat("q", 98)))
	}
	var out bytes.Buffer
	must(t, from.Export(t.Context(), ann, "a", &out))
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
	o.MaxOwnerBytes = 8000
	s := openWith(t, o)
	_, err := s.Import(t.Context(), ann, ckpt.ImportRequest{}, &out)
	wantCode(t, err, ckpt.CodeQuota)
	if agents, err := s.Agents(t.Context(), ann, ckpt.AgentFilter{}); err != nil || len(agents.Agents) != 0 {
		t.Errorf("the refused import left %v, %v", agents, err)
	}
}

// TestDatabaseQuota fills the database to its limit: saves are refused, reads
// and deletes still work, and the space that deletes free is used again.
func TestDatabaseQuota(t *testing.T) {
	t.Parallel()
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
	o.MaxBytes = 2 << 20
	s := openWith(t, o)
	var ids []string
	var err error
	for i := 0; err == nil; i++ {
		if i > 100 {
			t.Fatal("the database does not fill")
		}
		var c *ckpt.Saved
		if c, err = s.Save(t.Context(), ann, binary("a", ckpt.KindRecovery, noise(uint64(i), 100_000))); err == nil {
			ids = append(ids, c.ID)
		}
	}
	wantCode(t, err, ckpt.CodeStorageFull)
	if e := ckpt.AsError(err); e.OutcomeOrDefault() != ckpt.OutcomeNotSaved || !strings.Contains(e.Message, "limits.max_database") {
		t.Errorf("the answer: %+v", e)
	}
	if len(ids) < 15 || len(ids) > 20 {
		t.Errorf("%d states of 100 kB fit into 2 MiB", len(ids))
	}
	if _, err := s.Checkpoint(t.Context(), ann, ids[0], true); err != nil {
		t.Error(err)
	}
	for _, id := range ids[:3] {
		if _, err := s.Delete(t.Context(), ann, id); err != nil {
			t.Fatalf("a delete at the limit: %v", err)
		}
	}
	for i := range 2 {
		if _, err := s.Save(t.Context(), bob, binary("b", ckpt.KindRecovery, noise(uint64(500+i), 100_000))); err != nil {
			t.Errorf("with room again: %v", err)
		}
	}
	must(t, s.Close())
	sound(t, o.Path)
}

// TestTrimOfTheDatabase removes what a budget names, in bounded portions, until
// some room is left below the limit of the database. A dry run removes nothing.
func TestTrimOfTheDatabase(t *testing.T) {
	t.Parallel()
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
	o.MaxBytes = 2 << 20
	s := openWith(t, o)
	var err error
	for i := 0; err == nil; i++ {
		_, err = s.Save(t.Context(), ann, binary("a", ckpt.KindRecovery, noise(uint64(i), 60_000)))
	}
	wantCode(t, err, ckpt.CodeStorageFull)
	count := len(seqs(t, s, ann, "a"))
	oldest := func(runs []retention.History, over int64) (verdicts []retention.Verdict, left int64) {
		for _, run := range runs {
			for i := len(run.Checkpoints) - 1; i > 0 && over > 0; i-- {
				over -= run.Checkpoints[i].StoredSize
				verdicts = append(verdicts, retention.Verdict{ID: run.Checkpoints[i].ID, Remove: true, Reason: "over the budget"})
			}
		}
		return verdicts, max(over, 0)
	}
	would, _, err := s.Trim(t.Context(), 0, oldest, 1, true)
	must(t, err)
	if got := len(seqs(t, s, ann, "a")); got != count || len(would) == 0 {
		t.Errorf("a dry run names %d and leaves %d of %d", len(would), got, count)
	}
	removed := 0
	for over := int64(1); over > 0; {
		var gone []ckpt.Removal
		gone, over, err = s.Trim(t.Context(), 0, oldest, 1, false)
		must(t, err)
		if len(gone) > 1 || len(gone) == 0 && over > 0 {
			t.Fatalf("%d removed at once, %d bytes over", len(gone), over)
		}
		removed += len(gone)
	}
	if removed != len(would) {
		t.Errorf("%d removed, a dry run named %d", removed, len(would))
	}
	if _, err := s.Save(t.Context(), ann, binary("a", ckpt.KindRecovery, noise(1, 60_000))); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

// TestTrimOfOwnersWithTheSameIDs: an owner who has imported another's checkpoints has the same ids.
// The budget of the database removes the copy that it names, once.
func TestTrimOfOwnersWithTheSameIDs(t *testing.T) {
	t.Parallel()
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
	s := openWith(t, o)
	var ids []string
	for i := range 10 {
		saved, err := s.Save(t.Context(), ann, binary("a", ckpt.KindRecovery, noise(uint64(i), 60_000)))
		must(t, err)
		ids = append(ids, saved.ID)
	}
	_, err := s.Import(t.Context(), bob, ckpt.ImportRequest{}, strings.NewReader(exportOf(t, s, "a")))
	must(t, err)
	pinned := true
	for _, id := range ids[:5] {
		_, err := s.Patch(t.Context(), bob, id, ckpt.CheckpointPatch{Pinned: &pinned})
		must(t, err)
	}
	must(t, s.Close())
	o.MaxBytes = 1 << 20
	s = openWith(t, o)
	gone, _, err := s.Trim(t.Context(), 0, retention.Budget, 0, false)
	must(t, err)
	if len(gone) == 0 {
		t.Fatal("nothing was removed")
	}
	if got := len(seqs(t, s, ann, "a")) + len(seqs(t, s, bob, "a")); got != 20-len(gone) {
		t.Errorf("%d of 20 checkpoints stay after %d were removed", got, len(gone))
	}
	for _, id := range ids[:5] {
		if _, err := s.Checkpoint(t.Context(), bob, id, false); err != nil {
			t.Errorf("a pinned checkpoint: %v", err)
		}
	}
	sound(t, o.Path)
}
