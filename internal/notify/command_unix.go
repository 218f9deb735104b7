//go:build unix

package notify

import (
	"os/exec"
	"syscall"
)

// inGroup makes the timeout of a command kill the processes that the command has
// started too.
func inGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
