package main

import (
	"path/filepath"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift"
)

// The detectors with their defaults are better on the recorded runs than a plain
// reading of the thresholds, on both sides at once. The runs lie beside the
// project, not in it.
func TestDriftBeatsThePlainThresholds(t *testing.T) {
	files, _ := filepath.Glob(filepath.FromSlash("../../../shared/traces/dev-*.jsonl.gz"))
	if len(files) == 0 {
		files, _ = filepath.Glob(filepath.FromSlash("../../../../shared/traces/dev-*.jsonl.gz"))
	}
	if len(files) == 0 {
		t.Skip("the recorded runs (shared/traces beside the project) are not here")
	}
	for _, p := range []part{{}, {0, 2}, {1, 2}} {
		sums := judgeFiles(t, files, p)
		for _, limit := range []struct {
			source, outcome string
			tier            ckpt.Severity
			most            float64
		}{
			{"swe", "passed", ckpt.SeverityCritical, 0.022}, {"ats", "healthy", ckpt.SeverityCritical, 0.007},
			{"swe", "passed", ckpt.SeverityWarn, 0.14}, {"ats", "healthy", ckpt.SeverityWarn, 0.05},
		} {
			if row := sums.group(limit.source, limit.outcome).row(driftCell{limit.tier, ""}); row.Runs == 0 || row.Share > limit.most {
				t.Errorf("part %v: %s fires in %.3f of %d runs of %s %s, more than %.3f", p, limit.tier, row.Share, row.Runs, limit.source, limit.outcome, limit.most)
			}
		}
		if share := sums.together("ats", "looping", "rate_limit", "timeout"); share < 0.62 {
			t.Errorf("part %v: warn fires in %.3f of looping, rate_limit and timeout", p, share)
		}
		if share := sums.together("ats", "tool_cascade"); share < 0.28 {
			t.Errorf("part %v: warn fires in %.3f of tool_cascade", p, share)
		}
	}
}

func judgeFiles(t *testing.T, files []string, p part) *driftSums {
	t.Helper()
	policy, watch, sums := ckpt.DefaultPolicy(), drift.New(), newDriftSums()
	for _, path := range files {
		err := eachTrace(nil, path, func(run *trace, _, _ int64) error {
			if p.has(run.ID) {
				sums.add(run, judge(watch, &policy, run))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return sums
}

// together is in what share of several outcomes warn fired.
func (s *driftSums) together(source string, outcomes ...string) float64 {
	fired, runs := 0, 0
	for _, outcome := range outcomes {
		row := s.group(source, outcome).row(driftCell{ckpt.SeverityWarn, ""})
		fired, runs = fired+row.Fired, runs+row.Runs
	}
	return float64(fired) / float64(max(1, runs))
}

func TestMedianDelay(t *testing.T) {
	for want, delays := range map[float64][]int{3: {3}, 2.5: {4, 1, 3, 2}, 2: {9, 2, 0}} {
		if got := medianDelay(delays); got != want {
			t.Errorf("the median of %v is %v, not %v", delays, got, want)
		}
	}
}

func TestPartsAreDisjointAndComplete(t *testing.T) {
	for _, id := range []string{"", "a", "b", "run-17", "x/y.jsonl"} {
		n := 0
		for k := range uint64(3) {
			if (part{k, 3}).has(id) {
				n++
			}
		}
		if n != 1 || !(part{}).has(id) {
			t.Errorf("%q is in %d of 3 parts", id, n)
		}
	}
}
