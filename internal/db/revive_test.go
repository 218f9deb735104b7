package db_test

import (
	"testing"
	"time"

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

// TestSuccessSettlesOlderAttempts begins an operation again whose first attempt has an unknown outcome. Once the
// second attempt has succeeded, no person needs to be asked about the first.
func TestSuccessSettlesOlderAttempts(t *testing.T) {
	t.Parallel()
	s, _, p := openRuns(t)
	start(t, s, 11)
	begin := func(pid int) *ckpt.Operation {
		t.Helper()
		o, _, err := s.BeginOperation(t.Context(), as(pid), mainRun, ckpt.OperationRequest{Key: "pay", Name: "pay", State: ckpt.JSON(`{"paid":false}`)})
		must(t, err)
		return o
	}
	first := begin(11)
	die(t, s, p, 11, ckpt.RunInterrupted)
	second := begin(12)
	ended, _, err := s.EndOperation(t.Context(), as(12), mainRun, ckpt.OperationEnd{Key: "pay", Status: ckpt.OperationSucceeded})
	must(t, err)
	if second.Attempt != 2 || len(ended.Released) == 0 {
		t.Errorf("the attempt %d has let go of %v", second.Attempt, ended.Released)
	}
	page, err := s.Operations(t.Context(), ann, mainRun, ckpt.ListFilter{})
	must(t, err)
	for _, o := range page.Operations {
		want := map[int]ckpt.OperationStatus{1: ckpt.OperationFailed, 2: ckpt.OperationSucceeded}[int(o.Attempt)]
		if o.Status != want {
			t.Errorf("attempt %d is %s, want %s", o.Attempt, o.Status, want)
		}
	}
	if _, err := s.Checkpoint(t.Context(), ann, string(first.Checkpoint), false); ckpt.CodeOf(err) != ckpt.CodeNotFound {
		t.Errorf("the checkpoint of the first attempt is kept: %v", err)
	}
	p.kill(12)
	if plan := claim(t, s, 13); plan.Verdict == ckpt.VerdictAsk || len(plan.UncertainOperations) > 0 {
		t.Errorf("an operator is asked: %+v", plan)
	}
}
