package db_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/liveness"
)

// TestARevivedRunForgetsItsDeadOwner writes into a run whose owner was found dead. If the run kept the dead
// process, the monitor would find it dead again at once, after each write.
func TestARevivedRunForgetsItsDeadOwner(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		writer int
		begins string // the start time of the writer's process
		keeps  int    // the owner's process afterwards
	}{
		"another process":                 {12, "100", 0},
		"another process with its number": {11, "200", 0},
		"the owner itself":                {11, "100", 11},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, p := openRuns(t)
			start(t, s, 11)
			die(t, s, p, 11, ckpt.RunTimedOut)
			p.begin(c.writer, c.begins)
			save(t, s, as(c.writer), "a", ckpt.KindRoutine, `1`)
			run, err := s.Run(t.Context(), ann, mainRun)
			must(t, err)
			if run.Status != ckpt.RunRunning || run.PID != c.keeps {
				t.Errorf("the run is %s and belongs to process %d, want %d", run.Status, run.PID, c.keeps)
			}
			watched, err := s.Watched(t.Context(), 0, 10)
			must(t, err)
			for _, w := range watched {
				if w.Process.PID > 0 && p.Alive(w.Process) == liveness.Dead {
					t.Errorf("the monitor watches %+v, which is dead", w.Process)
				}
			}
		})
	}
}

// TestABeatOfADeadProcessRevivesNobody: a supervisor reports when its process was last alive, after the monitor has
// found that process dead.
func TestABeatOfADeadProcessRevivesNobody(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		begins string // the start time of the process that has the pid now
		want   ckpt.RunStatus
	}{
		"nobody has the number":          {"", ckpt.RunInterrupted},
		"a new process has it and beats": {"200", "starting"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _, p := openRuns(t)
			start(t, s, 11)
			die(t, s, p, 11, ckpt.RunInterrupted)
			if c.begins != "" {
				p.begin(11, c.begins)
			}
			run, err := s.Beat(t.Context(), as(12), mainRun, ckpt.Heartbeat{PID: 11})
			must(t, err)
			if run.Status != c.want {
				t.Errorf("the run is %s, want %s", run.Status, c.want)
			}
		})
	}
}

// TestABeatIsNoProgress sends heartbeats for a run that was given up because it made no progress.
func TestABeatIsNoProgress(t *testing.T) {
	t.Parallel()
	s, c, _ := openRuns(t)
	limit := ckpt.Duration(time.Minute)
	_, _, err := s.StartRun(t.Context(), as(11), ckpt.RunRequest{Agent: "a", PID: 11, ProgressTimeout: &limit})
	must(t, err)
	c.add(2 * time.Minute)
	watched, err := s.Watched(t.Context(), 0, 10)
	if err != nil || len(watched) != 1 {
		t.Fatalf("%+v, %v", watched, err)
	}
	if did, err := s.Interrupt(t.Context(), watched[0], ckpt.RunTimedOut, "no progress"); err != nil || !did {
		t.Fatal(did, err)
	}
	for _, progress := range []struct {
		says *float64
		want ckpt.RunStatus
	}{{nil, ckpt.RunTimedOut}, {new(0.5), "starting"}} {
		run, err := s.Beat(t.Context(), as(11), mainRun, ckpt.Heartbeat{Progress: progress.says})
		if err != nil || run.Status != progress.want {
			t.Errorf("after a beat the run is %+v, %v, want %s", run, err, progress.want)
		}
	}
}

// TestALaterSuccessChangesNothing: an attempt that is uncertain stays so when a later attempt, which a client had spooled,
// succeeds. A person is asked about it.
func TestALaterSuccessChangesNothing(t *testing.T) {
	t.Parallel()
	s, c, p := openRuns(t)
	start(t, s, 11)
	begin := ckpt.OperationRequest{Key: "pay", Name: "pay", State: ckpt.JSON(`{"paid":false}`)}
	first, _, err := s.BeginOperation(t.Context(), as(11), mainRun, begin)
	must(t, err)
	die(t, s, p, 11, ckpt.RunInterrupted)
	read := func() ckpt.Operation {
		t.Helper()
		page, err := s.Operations(t.Context(), ann, mainRun, ckpt.ListFilter{})
		must(t, err)
		return page.Operations[len(page.Operations)-1]
	}
	before := read()
	c.add(time.Minute)
	spooled := as(12)
	spooled.Spooled = ckpt.At(c.Now())
	second, _, err := s.BeginOperation(t.Context(), spooled, mainRun, begin)
	must(t, err)
	ended, _, err := s.EndOperation(t.Context(), spooled, mainRun, ckpt.OperationEnd{Key: "pay", Status: ckpt.OperationSucceeded})
	must(t, err)
	if second.Attempt != 2 || slices.Contains(ended.Released, string(first.Checkpoint)) {
		t.Errorf("the attempt %d has let go of %v", second.Attempt, ended.Released)
	}
	if after := read(); after.Attempt != 1 || after.Status != ckpt.OperationUncertain || !cmp.Equal(before, after) {
		t.Errorf("the first attempt was rewritten: %s", cmp.Diff(before, after))
	}
	p.kill(12)
	wantVerdict(t, claim(t, s, 13), ckpt.VerdictAsk)
	_, _, err = s.ResolveOperation(t.Context(), ann, mainRun, ckpt.OperationResolution{Key: "pay", Choice: ckpt.ChoiceItDid, Reason: "the bank says so"})
	must(t, err)
	if o := read(); o.Status != ckpt.OperationSucceeded || o.Resolution != "it_did" || string(o.ResolvedBy) != ann.Caller.Owner || !o.EndedAt.Equal(before.EndedAt.Time) {
		t.Errorf("the first attempt is %+v", o)
	}
	if rows := sqlite3(t, pathOf(s), `SELECT who, reason, detail ->> 'attempt', detail ->> 'choice' FROM audit_log WHERE action = 'resolve_operation'`); rows != ann.Caller.Owner+"|the bank says so|1|it_did" {
		t.Errorf("the audit log has %q", rows)
	}
	if _, err := s.Checkpoint(t.Context(), ann, string(first.Checkpoint), false); ckpt.CodeOf(err) != ckpt.CodeNotFound {
		t.Errorf("the checkpoint of the first attempt is kept: %v", err)
	}
}

// TestEndNeedsTheAttempt: an end that names no attempt may be meant for one that never began, so it ends no uncertain attempt.
// Code that names the attempt may say late how it ended, which is a resolution.
func TestEndNeedsTheAttempt(t *testing.T) {
	t.Parallel()
	s, _, _ := openRuns(t)
	start(t, s, 11)
	_, _, err := s.BeginOperation(t.Context(), as(11), mainRun, ckpt.OperationRequest{Key: "pay", Name: "pay"})
	must(t, err)
	end := func(status ckpt.OperationStatus, attempt int64) (*ckpt.OperationEnded, error) {
		ended, _, err := s.EndOperation(t.Context(), as(11), mainRun, ckpt.OperationEnd{Key: "pay", Attempt: attempt, Status: status, Error: "TimeoutError: late"})
		return ended, err
	}
	_, err = end(ckpt.OperationUncertain, 1)
	must(t, err)
	for _, status := range []ckpt.OperationStatus{ckpt.OperationFailed, ckpt.OperationSucceeded} {
		_, err = end(status, 0)
		wantCode(t, err, ckpt.CodeUncertainOperation)
	}
	ended, err := end(ckpt.OperationSucceeded, 1)
	if err != nil || ended.Status != ckpt.OperationSucceeded || ended.ResolvedBy != ckpt.ResolvedByOwner || ended.Error != "TimeoutError: late" {
		t.Errorf("%+v, %v", ended, err)
	}
}
