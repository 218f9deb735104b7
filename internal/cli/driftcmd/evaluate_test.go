package driftcmd

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift"
)

// recordedFiles returns the recorded runs, which are outside of the project.
func recordedFiles(t *testing.T) []string {
	t.Helper()
	for _, up := range []string{"../../../../shared", "../../../../../shared"} {
		if files, _ := filepath.Glob(filepath.FromSlash(up + "/traces/dev-*.jsonl.gz")); len(files) > 0 {
			return files
		}
	}
	t.Skip("the recorded runs (shared/traces beside the project) are not here")
	return nil
}

// TestDriftMeetsItsBars: the detectors meet their targets over all recorded
// runs.
func TestDriftMeetsItsBars(t *testing.T) {
	policy, watch := ckpt.DefaultPolicy(), drift.New()
	evaluator := watch.Evaluator()
	for _, path := range recordedFiles(t) {
		err := eachTrace(nil, path, func(run *trace, _, _ int64) error {
			evaluator.Judge(&policy, run.recorded(t.Context(), watch, &policy), false)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	share := map[string]float64{}
	for _, row := range evaluator.Result().Rows {
		if row.Rule == "" {
			share[row.Source+" "+row.Outcome+" "+string(row.Tier)] = row.Share
		}
	}
	for name, most := range map[string]float64{
		"swe passed warn": 0.05, "swe passed critical": 0.01, "ats healthy warn": 0.03, "ats healthy critical": 0.005,
	} {
		if got, there := share[name]; !there || got > most {
			t.Errorf("%s: %.4f, at most %.3f", name, got, most)
		}
	}
	for name, least := range map[string]float64{"ats tool_cascade warn": 0.484, "ats looping warn": 0.91, "ats rate_limit warn": 0.88, "ats timeout warn": 0.68} {
		if share[name] < least {
			t.Errorf("%s: %.4f, at least %.3f", name, share[name], least)
		}
	}
}

// TestFaultsThatLastAreFound: nearly every run with a lasting fault gets a
// warning. A fault from which the agent recovered at once needs none.
func TestFaultsThatLastAreFound(t *testing.T) {
	policy, watch := ckpt.DefaultPolicy(), drift.New()
	lasted, found := 0, 0
	for _, path := range recordedFiles(t) {
		err := eachTrace(nil, path, func(run *trace, _, _ int64) error {
			if !slices.Contains([]string{"looping", "rate_limit", "timeout", "tool_cascade"}, run.Outcome) {
				return nil
			}
			evaluator := watch.Evaluator()
			evaluator.Judge(&policy, run.recorded(t.Context(), watch, &policy), true)
			result, unproductive := evaluator.Result(), 0
			for _, step := range result.Explained {
				nothing := slices.ContainsFunc(step.Saw, func(saw string) bool {
					return strings.HasPrefix(saw, "seen before") || strings.HasPrefix(saw, "it complains")
				})
				if step.Step >= *run.Onset && (step.Failed || nothing) {
					unproductive++
				}
			}
			if unproductive >= 3 {
				lasted++
				found += len(result.Warned)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d of %d runs whose fault lasted were warned", found, lasted)
	if lasted < 50 || float64(found) < 0.98*float64(lasted) {
		t.Errorf("%d of %d runs whose fault lasted were warned, want 98 %%", found, lasted)
	}
}

// TestTurnsAsNumbers: the turn of a step is a text or a number, and equal calls of one turn count once.
func TestTurnsAsNumbers(t *testing.T) {
	policy, watch := ckpt.DefaultPolicy(), drift.New()
	for turn, want := range map[string]int{"%d": 1, `"turn %d"`: 1, "7": 0, `"7"`: 0, "null": 1} {
		var steps []string
		for i := range 5 {
			turn := strings.ReplaceAll(turn, "%d", strconv.Itoa(i))
			steps = append(steps, `{"tool":"search","args":{"q":"x"},"result":"nothing","turn":`+turn+`}`)
		}
		path := filepath.Join(t.TempDir(), "runs.jsonl")
		if err := os.WriteFile(path, []byte(`{"id":"r","source":"s","outcome":"passed","steps":[`+strings.Join(steps, ",")+"]}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		evaluator := watch.Evaluator()
		err := eachTrace(nil, path, func(run *trace, _, _ int64) error {
			evaluator.Judge(&policy, run.recorded(t.Context(), watch, &policy), false)
			return nil
		})
		if err != nil {
			t.Fatalf("turn %s: %v", turn, err)
		}
		if got := len(evaluator.Result().Warned); got != want {
			t.Errorf("with the turn %s, %d runs are warned, want %d", turn, got, want)
		}
	}
	for _, turn := range []string{"true", "{}", "[1]"} {
		var got traceTurn
		if err := got.UnmarshalJSON([]byte(turn)); err == nil || !strings.Contains(err.Error(), "turn must be a text or a number") {
			t.Errorf("turn %s: %v", turn, err)
		}
	}
}
