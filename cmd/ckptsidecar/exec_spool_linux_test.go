package main

import (
	"path/filepath"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/client"
)

// spoolUnderExec runs the spooler under exec, takes the daemon away while it works, and
// brings it back.
func spoolUnderExec(t *testing.T, agent, exit string) *supervised {
	t.Helper()
	s := newSupervised(t)
	s.env = append(s.env, client.EnvSpool+"="+filepath.Join(s.dir, "spool"))
	s.start("--agent", agent, "--backoff", "1ms", "--", "spooler", s.dir, exit)
	s.file("begun")
	_ = s.daemon.Process.Kill()
	_ = s.daemon.Wait()
	s.file("spooled")
	s.serve()
	if code := s.play(nil, 0, time.Second, nil); code != 0 {
		t.Errorf("exec ended with %d", code)
	}
	for _, left := range []string{"*.ckpt", "rejected/*"} {
		if files, _ := filepath.Glob(filepath.Join(s.dir, "spool", left)); len(files) > 0 {
			t.Errorf("the spool has %v", files)
		}
	}
	return s
}

// TestExecSendsTheSpoolBeforeItClaims: what a killed command had spooled is in the plan of the
// next attempt, so it is not done again.
func TestExecSendsTheSpoolBeforeItClaims(t *testing.T) {
	t.Parallel()
	s := spoolUnderExec(t, "spooling", "1")
	if got := s.file("plan"); got != "pay" {
		t.Errorf("the plan says that %q is done", got)
	}
}

// TestExecSendsTheSpoolBeforeItEndsTheRun: the daemon takes no write of a run that has ended.
func TestExecSendsTheSpoolBeforeItEndsTheRun(t *testing.T) {
	t.Parallel()
	s := spoolUnderExec(t, "spooling", "0")
	run, err := s.client.Run(t.Context(), ckpt.RunRef{Agent: "spooling"})
	if err != nil || run.Status != ckpt.RunCompleted {
		t.Errorf("%+v, %v", run, err)
	}
	steps, err := s.client.Steps(t.Context(), ckpt.RunRef{Agent: "spooling"}, ckpt.ListFilter{})
	if err != nil || len(steps.Steps) != 1 || steps.Steps[0].Status != ckpt.StepSucceeded {
		t.Errorf("%+v, %v", steps, err)
	}
}
