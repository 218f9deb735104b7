package surveys

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"

	_ "modernc.org/sqlite"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// TestSurveysUseIndexes fails for a scan of a table that grows without end, and for a sort of more rows than the
// result has.
func TestSurveysUseIndexes(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", "file:"+t.TempDir()+"/ckpt.db")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(ckpt.Schema); err != nil {
		t.Fatal(err)
	}
	large := []string{"steps", "checkpoints", "findings", "operations", "prompts", "events", "acts", "segments", "run_segments"}
	// The aliases of the tables in the queries, and the indexes that hold only rows of the result.
	small := []string{"operations_uncertain", "prompts_waiting", "findings_open", "findings_secrets", "findings_by_severity", "COVERING INDEX runs_by_status"}
	for name, query := range map[string]string{
		"uncertain operations": selectUncertain, "open prompts": selectPrompts, "lost runs": selectLost,
		"critical findings": fmt.Sprintf(selectFindings, criticalFindings), "secrets": fmt.Sprintf(selectFindings, secretFindings),
		"which runs": newestLines, "runs": readLines, "findings of runs": lineFindings, "uncertain of runs": lineUncertain, "prompts of runs": linePrompts,
		"segments of runs": lineSegments, "steps in bins": binSteps, "failed in bins": binFailed, "operations in bins": binOperations, "findings in bins": binFindings,
		"count of all runs": countRuns("*"), "count of an owner's runs": countRuns("uid:1"),
		"count of all findings": countFindings("*"), "count of an owner's findings": countFindings("uid:1"),
		"recorded run": selectRecorded, "segments": selectSegments, "agents' runs": selectAgentsRuns, "held": selectHeld, "needed": selectNeeded, "first": selectFirst, "last": selectLast,
		"count of steps": countSteps, "steps": selectSteps, "step bins": selectStepBins,
		"operations": selectOperations, "checkpoints": selectCheckpoints, "places": selectPlaces, "findings": selectRunFindings,
		"count of findings": countRunFindings, "count of operations": countRunOperations,
	} {
		args := []any{"", "", ""}[:countArgs(query)]
		plan := expect.Plan(t, db, query, args...)
		for _, step := range plan {
			if !strings.HasPrefix(step, "SCAN ") || contains(step, small) {
				continue
			}
			table := strings.Fields(step)[1]
			if contains(table, []string{"x"}) && slices.Contains(plan, "CO-ROUTINE x") {
				continue // groups of rows that came from an index
			}
			if contains(table, []string{"x", "f", "s", "c", "o", "p"}) && len(table) == 1 || contains(table, large) {
				t.Errorf("%s: %q in\n%s", name, step, strings.Join(plan, "\n"))
			}
		}
	}
}

func contains(text string, parts []string) bool {
	for _, part := range parts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

// countArgs returns the number of parameters of a query.
func countArgs(query string) (n int) {
	for i := 1; i <= 3; i++ {
		if strings.Contains(query, fmt.Sprint("?", i)) {
			n = i
		}
	}
	return n
}
