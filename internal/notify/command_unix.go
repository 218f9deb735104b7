//go:build unix

package notify

import (
	"os/exec"
	"syscall"
)

// inGroup lets the end of a command's time end what it has started as well.
func inGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
