//go:build linux || darwin

package endpoint

import (
	"bufio"
	"os/exec"
	"syscall"
	"testing"
)

// startServer runs a separate daemon as another user and waits until it
// listens. It returns the process for tests that kill it.
func startServer(t *testing.T, path string, uid uint32) *exec.Cmd {
	t.Helper()
	cmd := child(t, "listen", path, childOf(uid))
	waitReady(t, cmd)
	return cmd
}

func childOf(uid uint32) *syscall.SysProcAttr { return &syscall.SysProcAttr{Credential: asUser(uid)} }

// waitReady starts a server and waits until it listens. The reader has its
// further output.
func waitReady(t *testing.T, cmd *exec.Cmd) *bufio.Reader {
	t.Helper()
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	said := bufio.NewReader(out)
	line, err := said.ReadString('\n')
	must(t, err)
	if line != "ready\n" {
		t.Fatalf("the server says %q", line)
	}
	return said
}

func stop(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
}
