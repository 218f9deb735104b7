package journal_test

import (
	"fmt"
	"path/filepath"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/journal"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

// TestWhatAForkFreesIsShipped: the first save of a fork can remove the checkpoint of the other run
// that only the fork kept. The batch says that the other run has lost it.
func TestWhatAForkFreesIsShipped(t *testing.T) {
	t.Parallel()
	s, err := db.Open(t.Context(), db.Options{Path: filepath.Join(t.TempDir(), "ckpt.db"), Retention: retention.Plan, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	save := func(run string, n int) *ckpt.Saved {
		t.Helper()
		saved, err := s.Save(t.Context(), ann, &ckpt.SaveRequest{Agent: "a", Run: run, Kind: ckpt.KindRoutine,
			ContentType: ckpt.ContentTypeJSON, State: fmt.Append(nil, n)})
		if err != nil {
			t.Fatal(err)
		}
		return saved
	}
	from := save("main", 0)
	_, _, err = s.StartRun(t.Context(), ann, ckpt.RunRequest{Agent: "a", Run: "fork", ForkFrom: ckpt.Ref(from.ID)})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		save("main", 1+i)
	}
	var n int64
	if err := s.RO.Get(&n, `SELECT n FROM checkpoints WHERE id = ?`, from.ID); err != nil {
		t.Fatal(err)
	}
	reader := journal.New(s.Core)
	mark, _, err := reader.Where(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if saved := save("fork", 9); len(saved.Pruned) != 1 || saved.Pruned[0] != from.ID {
		t.Fatalf("the first save of the fork removed %q, want %s", saved.Pruned, from.ID)
	}
	has := &segments{}
	has.forget()
	c, err := reader.Since(t.Context(), mark, fleet.Limits{Rows: 4000, Bytes: 8 << 20}, journal.Choice{}, has)
	if err != nil {
		t.Fatal(err)
	}
	gone := map[string][]int64{}
	for i := range c.Runs {
		gone[c.Runs[i].Name] = c.Runs[i].Gone
	}
	if len(gone["main"]) != 1 || gone["main"][0] != n || len(gone["fork"]) != 0 {
		t.Errorf("the batch says that the runs have lost %v, want %d of main", gone, n)
	}
}
