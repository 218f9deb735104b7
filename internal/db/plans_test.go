package db

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/files"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

// TestQueryPlans: frequent queries use an index, whatever else is in the
// database.
func TestQueryPlans(t *testing.T) {
	t.Parallel()
	keep := func(retention.History, ckpt.Policy, time.Time) []retention.Verdict { return nil }
	s, err := Open(t.Context(), Options{Path: filepath.Join(t.TempDir(), "ckpt.db"), Retention: keep})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var all, one ledger.ListQuery
	all.OfAllRuns(ledger.ReadColumns, 1, ckpt.Kinds, ckpt.CheckpointFilter{}, 1<<62, 51)
	one.OfRun(ledger.ReadColumns, 1, ckpt.Kinds, ckpt.CheckpointFilter{Run: "r"}, 1<<62, 51)
	for _, tt := range []struct {
		name  string
		query ledger.ListQuery
		want  []string
		never string
	}{
		{"the runs that are watched", query(selectWatched, 0, 100, ""), []string{"SEARCH r USING INDEX runs_watched (status=? AND rowid>?)"}, "TEMP B-TREE"},
		{"which contents are there", query(files.SelectThere, `[]`, 1, ""), []string{"SEARCH c USING COVERING INDEX contents_by_hash (agent_id=? AND sha256=?)"}, "SCAN c"},
		{"the sizes of contents", query(files.SelectSizes, `[]`, 1), []string{"SEARCH c USING INDEX contents_by_hash (agent_id=? AND sha256=?)"}, "SCAN c"},
		{"contents that stay longer", query(files.SelectLeased, `[]`, "", 1), []string{"SEARCH c USING INTEGER PRIMARY KEY"}, "SCAN c"},
		{"what the files of an agent take", query(files.SelectStored, 1), []string{"SEARCH contents USING COVERING INDEX contents_sizes (agent_id=?)"}, "SCAN"},
		{"a list of all runs", all, []string{"SEARCH k USING COVERING INDEX checkpoints_of_run (run_id=? AND kind=?)", "SEARCH c USING INTEGER PRIMARY KEY", "INDEX runs_of_agent (agent_id=?)"}, "SCAN c"},
		{"a list of one run", one, []string{"SEARCH k USING COVERING INDEX checkpoints_of_run (run_id=? AND kind=?)", "SEARCH c USING INTEGER PRIMARY KEY", "INDEX sqlite_autoindex_runs_1 (agent_id=? AND name=?)"}, "SCAN c"},
	} {
		plan := planOf(t, s, tt.query)
		for _, want := range tt.want {
			if !strings.Contains(plan, want) {
				t.Errorf("%s: no %q in\n%s", tt.name, want, plan)
			}
		}
		if strings.Contains(plan, tt.never) {
			t.Errorf("%s: %q in\n%s", tt.name, tt.never, plan)
		}
	}
}

func query(text string, args ...any) (l ledger.ListQuery) {
	l.Text.WriteString(text)
	l.Args = args
	return l
}

func planOf(t *testing.T, s *Store, l ledger.ListQuery) string {
	t.Helper()
	var steps []struct {
		ID, Parent, Notused int64
		Detail              string
	}
	if err := s.RO.SelectContext(t.Context(), &steps, `EXPLAIN QUERY PLAN `+l.Text.String(), l.Args...); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, step := range steps {
		fmt.Fprintln(&b, step.Detail)
	}
	return b.String()
}
