package hook_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/hook"
)

// agentProcess starts a process that can own a run, and returns a function that
// ends it.
func agentProcess(t *testing.T) (pid int, kill func()) {
	t.Helper()
	cmd := exec.Command(binary, "mcp", "--agent", "nobody") // it waits for its host
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = in.Close()
	}
	t.Cleanup(kill)
	return cmd.Process.Pid, kill
}

func TestTheOwnerIsNoShell(t *testing.T) {
	if got := hook.OwnerOf(os.Getpid()); got != os.Getpid() && got != 0 {
		t.Errorf("the owner of a hook of this process is %d, not %d", got, os.Getpid())
	}
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no sh")
	}
	cmd := exec.Command(sh, "-c", "read line; exit 0") // it waits
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close(); _ = cmd.Wait() }()
	if got := hook.OwnerOf(cmd.Process.Pid); got != os.Getpid() && got != 0 {
		t.Errorf("the owner of a hook of a shell of this process is %d, not %d", got, os.Getpid())
	}
}
