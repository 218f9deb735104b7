package main

import (
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// TestPoliciesAreSetAtTheSameTime: each command changes another setting of the same agent, and none undoes another.
func TestPoliciesAreSetAtTheSameTime(t *testing.T) {
	t.Parallel()
	socket := serveFor(t)
	for _, settings := range [][]string{{"routine_keep=5", "max_bytes=1GB", "recovery_keep=9d"}, {"routine_keep=6", "max_bytes=2GB", "recovery_keep=8d"}} {
		var all sync.WaitGroup
		for _, setting := range settings {
			all.Go(func() {
				cmd := exec.Command("ckptsidecar", "policy", "set", "a", setting, "--socket", socket)
				cmd.Env = os.Environ()
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%s: %v: %s", setting, err, out)
				}
			})
		}
		all.Wait()
	}
	c := client.Client{Socket: socket}
	defer c.Close()
	p, err := c.Policy(t.Context(), "a")
	if err != nil || p.RoutineKeep != 6 || p.MaxBytes != 2_000_000_000 || p.RecoveryKeep.String() != "8d" {
		t.Errorf("the policy is %+v: %v", p, err)
	}
}
