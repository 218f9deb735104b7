//go:build unix

package hook_test

import (
	"bytes"
	"context"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// TestAFrozenDaemonStopsNobody: a daemon that accepts connections and never
// responds is worse than no daemon. The limit here is only the test's own.
func TestAFrozenDaemonStopsNobody(t *testing.T) {
	t.Parallel()
	socket := newDaemon(t)
	c := &client.Client{Socket: socket}
	defer c.Close()
	status, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(status.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(status.PID, syscall.SIGCONT) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "hook", "--for", "claude-code", "--socket", socket)
	cmd.Stdin = bytes.NewReader(one("PreToolUse", 1))
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("said %s, error %v", out, err)
	}
}
