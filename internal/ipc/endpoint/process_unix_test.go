//go:build linux || darwin

package endpoint

import (
	"bufio"
	"os/exec"
	"syscall"
	"testing"
)

// startServer runs a daemon of its own as another user and waits until it
// listens. The process is returned for tests that kill it.
func startServer(t *testing.T, path string, uid uint32) *exec.Cmd {
	t.Helper()
	cmd := child(t, "listen", path, &syscall.SysProcAttr{Credential: asUser(uid)})
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	if line != "ready\n" {
		t.Fatalf("the server says %q", line)
	}
	return cmd
}

func stop(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
}
