package db_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

func record(t testing.TB, s *db.Store, ref ckpt.RunRef, f survey.RecorderQuery) *survey.Recorder {
	t.Helper()
	v, err := s.Recorder(t.Context(), ann, ref, f)
	must(t, err)
	return v
}

// TestRecorderHasAttempts: who ran a run, when, and how that ended is stored as
// data, and does not depend on the audit log.
func TestRecorderHasAttempts(t *testing.T) {
	t.Parallel()
	s, c, p := openRuns(t)
	began := ckpt.At(c.Now())
	start(t, s, 1)
	_, err := s.Save(t.Context(), as(1), request("a", ckpt.KindRoutine, `1`))
	must(t, err)
	c.add(time.Minute)
	_, err = s.Beat(t.Context(), as(1), mainRun, ckpt.Heartbeat{})
	must(t, err)
	lastSign := ckpt.At(c.Now())
	c.add(10 * time.Minute)
	p.kill(1)
	dies(t, s, "a", "main") // nobody noticed that for ten minutes
	c.add(time.Hour)
	resumed := ckpt.At(c.Now())
	claim(t, s, 2)
	c.add(time.Minute)
	save(t, s, as(2), "a", ckpt.KindRoutine, `2`)
	c.add(5 * time.Minute)
	claim(t, s, 3, func(r *ckpt.ResumeRequest) { r.Force = true })
	c.add(time.Minute)
	_, _, err = s.EndRun(t.Context(), as(3), mainRun, ckpt.EndRequest{Status: ckpt.RunCompleted})
	must(t, err)
	ended := ckpt.At(c.Now())
	v := record(t, s, mainRun, survey.RecorderQuery{})
	want := []survey.Segment{
		{Attempt: 1, From: began, To: lastSign, How: "interrupted", PID: 1},
		{Attempt: 2, From: resumed, To: ckpt.At(resumed.Add(time.Minute)), How: "interrupted", PID: 2},
		{Attempt: 3, From: ckpt.At(resumed.Add(6 * time.Minute)), To: ended, How: "completed", PID: 3},
	}
	if !slices.Equal(v.Segments, want) {
		t.Errorf("segments\n%+v\nwant\n%+v", v.Segments, want)
	}
	if v.Sums.WorkedMS != 180_000 || !v.Began.Equal(began.Time) || !v.Ended.Equal(ended.Time) || v.Status != ckpt.RunCompleted || v.Attempt != 3 {
		t.Errorf("from %s to %s, worked %d ms, %s, attempt %d", v.Began, v.Ended, v.Sums.WorkedMS, v.Status, v.Attempt)
	}

	// The run begins anew. What was before is another life.
	claim(t, s, 4)
	if v := record(t, s, mainRun, survey.RecorderQuery{}); len(v.Segments) != 1 || v.Segments[0].How != "" || !v.Segments[0].To.IsZero() || v.Segments[0].PID != 4 {
		t.Errorf("begun anew: %+v", v.Segments)
	}
	before := ckpt.RunRef{Agent: "a", Run: "main~1"}
	if v := record(t, s, before, survey.RecorderQuery{}); !slices.Equal(v.Segments, want) {
		t.Errorf("the life before: %+v", v.Segments)
	}
	_, _, err = s.EndRun(t.Context(), as(4), mainRun, ckpt.EndRequest{Status: ckpt.RunCompleted})
	must(t, err)
	for _, ref := range []ckpt.RunRef{mainRun, before} {
		_, err = s.DeleteRun(t.Context(), ann, ref, false)
		must(t, err)
	}
	if got := sqlite3(t, pathOf(s), `SELECT count(*) FROM run_segments`); got != "0" {
		t.Errorf("%s segments are left of a run that was deleted", got)
	}
}

// TestRecorderHasTheLanes has one item of each kind in the view, and leaves out
// items outside of it.
func TestRecorderHasTheLanes(t *testing.T) {
	t.Parallel()
	s, c, _ := openRuns(t)
	start(t, s, 1)
	step := func(key string, status ckpt.StepStatus) {
		t.Helper()
		cost, out := 0.5, int64(7)
		_, _, err := s.BeginStep(t.Context(), as(1), mainRun, ckpt.StepRequest{Key: key, Name: "bash", Status: status, CostUSD: &cost, OutputTokens: &out})
		must(t, err)
	}
	step("1", ckpt.StepSucceeded)
	save(t, s, as(1), "a", ckpt.KindRoutine, `1`)
	c.add(time.Minute)
	from := ckpt.At(c.Now())
	step("2", ckpt.StepFailed)
	_, _, err := s.BeginOperation(t.Context(), as(1), mainRun, ckpt.OperationRequest{Key: "push", Name: "push branch", State: ckpt.JSON(`{"n":2}`)})
	must(t, err)
	critical(t, s, "a", "main", "it goes in circles")
	c.add(time.Minute)
	to := ckpt.At(c.Now())
	step("3", ckpt.StepSucceeded)
	c.add(time.Minute)
	step("4", ckpt.StepSucceeded)

	v := record(t, s, mainRun, survey.RecorderQuery{From: from, To: to})
	if v.Steps.Count != 2 || v.Steps.Marks[0].Key != "2" || v.Steps.Marks[0].Status != ckpt.StepFailed || *v.Steps.Marks[0].CostUSD != 0.5 || v.Steps.Marks[1].Key != "3" {
		t.Errorf("steps %+v", v.Steps)
	}
	if v.Operations.Count != 1 || v.Operations.Marks[0].Key != "push" || v.Operations.Marks[0].Status != ckpt.OperationOpen {
		t.Errorf("operations %+v", v.Operations)
	}
	if v.Checkpoints.Count != 2 || v.Checkpoints.Marks[0].Kind != ckpt.KindPreOperation || v.Checkpoints.Marks[0].Operation != "push" ||
		v.Checkpoints.Marks[1].Kind != ckpt.KindRecovery || !v.Checkpoints.Marks[1].Suspect {
		t.Errorf("checkpoints %+v", v.Checkpoints)
	}
	if v.Findings.Count != 1 || v.Findings.Marks[0].Message != "it goes in circles" || v.Findings.Marks[0].Closed != "" {
		t.Errorf("findings %+v", v.Findings)
	}
	if m := v.Sums; m.Steps != 4 || m.Failed != 1 || m.StepsEnded != 4 || m.Operations != 1 || m.Checkpoints != 3 || m.Saves != 3 || m.Findings != 1 || m.CostUSD != 2 || m.OutputTokens != 28 {
		t.Errorf("sums %+v", m)
	}
	var all int64
	for _, b := range v.Whole.Steps {
		all += b.Count
	}
	if all != 4 {
		t.Errorf("the lane of the whole run has %d steps", all)
	}

	// An operation that waits is in each later view, and the run is visible
	// only to its owner.
	if v := record(t, s, mainRun, survey.RecorderQuery{From: to}); v.Operations.Count != 1 {
		t.Errorf("later there are %d operations", v.Operations.Count)
	}
	_, err = s.Recorder(t.Context(), bob, mainRun, survey.RecorderQuery{})
	wantCode(t, err, ckpt.CodeNotFound)
}

// TestRecorderCountsByBins: if a lane has more items than fit, its bins count
// all of them.
func TestRecorderCountsByBins(t *testing.T) {
	t.Parallel()
	s, c, _ := openRuns(t)
	_, err := s.SetOwnPolicy(t.Context(), ann, "a", []byte(`{"routine_keep":0}`))
	must(t, err)
	start(t, s, 1)
	const each = 25
	failed := 0
	for i := range each {
		status := ckpt.StepSucceeded
		if i%5 == 0 {
			status = ckpt.StepFailed
			failed++
		}
		_, _, err := s.BeginStep(t.Context(), as(1), mainRun, ckpt.StepRequest{Key: fmt.Sprint(i), Name: "bash", Status: status})
		must(t, err)
		save(t, s, as(1), "a", ckpt.KindRoutine, fmt.Sprint(i))
		_, _, err = s.BeginOperation(t.Context(), as(1), mainRun, ckpt.OperationRequest{Key: fmt.Sprint(i), Name: "op"})
		must(t, err)
		_, _, err = s.PostFinding(t.Context(), ann, "a", ckpt.FindingRequest{Rule: "own", Severity: ckpt.SeverityWarn, Message: "m"})
		must(t, err)
		c.add(7 * time.Second)
	}
	v := record(t, s, mainRun, survey.RecorderQuery{Bins: 10})
	var steps, bad, operations, routine, before, findings int64
	for i, b := range v.Steps.Bins {
		steps, bad = steps+b.Count, bad+b.Failed
		if i > 0 && b.I <= v.Steps.Bins[i-1].I || b.I >= 10 {
			t.Errorf("bin %d comes after bin %d", b.I, v.Steps.Bins[i-1].I)
		}
	}
	for _, b := range v.Operations.Bins {
		operations += b.Count
	}
	for _, b := range v.Checkpoints.Bins {
		routine, before = routine+b.Routine, before+b.PreOperation
		if b.FirstSeq == 0 || b.LastSeq < b.FirstSeq || b.Largest == 0 {
			t.Errorf("a bin of checkpoints is %+v", b)
		}
	}
	for _, b := range v.Findings.Bins {
		findings += b.Count
		if b.Worst != ckpt.SeverityWarn || b.Open != b.Count {
			t.Errorf("a bin of findings is %+v", b)
		}
	}
	if steps != each || bad != int64(failed) || operations != each || routine != each || before != each || findings != each {
		t.Errorf("the bins have %d steps, %d failed, %d operations, %d + %d checkpoints, %d findings", steps, bad, operations, routine, before, findings)
	}
	if len(v.Steps.Marks)+len(v.Operations.Marks)+len(v.Checkpoints.Marks)+len(v.Findings.Marks) != 0 || v.Steps.Count != each {
		t.Error("lanes with bins have marks")
	}
	if v.BinMS*10 < v.To.Sub(v.From.Time).Milliseconds() {
		t.Errorf("ten bins of %d ms do not reach from %s to %s", v.BinMS, v.From, v.To)
	}
}

// TestRecorderOfMuchIsSmall: the recorder of a run with 100,000 steps and
// 100,000 checkpoints has few marks.
func TestRecorderOfMuchIsSmall(t *testing.T) {
	if testing.Short() {
		t.Skip("it fills a large database")
	}
	s, c := fullOfRuns(t)
	path := pathOf(s)
	must(t, s.Close())
	sqlite3(t, path, `UPDATE runs SET last_seq = 100000 WHERE id = 1; DELETE FROM steps; DELETE FROM checkpoints;
		WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 99999)
		INSERT INTO steps (run_id, key, name, status, args, result, started_at) SELECT 1, i, 'bash', CASE WHEN i % 20 THEN 'succeeded' ELSE 'failed' END,
			'{"command":"`+fmt.Sprintf("%0200d", 1)+`"}', '"done"', strftime('%Y-%m-%dT%H:%M:%fZ', '2026-03-01T10:00:00.000Z', printf('+%.3f seconds', i * 0.072)) FROM n;
		WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 99999)
		INSERT INTO checkpoints (slot, n, id, run_id, seq, kind, created_at, size, stored_size, sha256, content_type, body)
			SELECT (1 << 32) + 1 + i, i + 1, printf('019cad25-8e6c-7a5f-9d0e-%012d', i), 1, 1 + i, 'routine',
			strftime('%Y-%m-%dT%H:%M:%fZ', '2026-03-01T10:00:00.000Z', printf('+%.3f seconds', i * 0.072)), 1, 1, lower(hex(zeroblob(32))), 'application/json', x'31' FROM n;`)
	s = openWith(t, options(path, c))
	var times []time.Duration
	for range 9 {
		began := time.Now()
		v := record(t, s, ckpt.RunRef{Agent: "agent-0", Run: "run-0"}, survey.RecorderQuery{})
		times = append(times, time.Since(began))
		marks := len(v.Steps.Bins) + len(v.Steps.Marks) + len(v.Operations.Marks) + len(v.Checkpoints.Bins) + len(v.Checkpoints.Marks) + len(v.Findings.Marks) + len(v.Whole.Steps)
		if v.Steps.Count != 100_000 || v.Checkpoints.Count != 100_000 || marks > 1200 {
			t.Fatalf("%d steps and %d checkpoints in %d marks", v.Steps.Count, v.Checkpoints.Count, marks)
		}
	}
	slices.Sort(times)
	t.Logf("the recorder of 100,000 steps and 100,000 checkpoints takes %v in the middle, %v at most", times[len(times)/2], times[len(times)-1])
}
