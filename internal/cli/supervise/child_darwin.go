package supervise

import (
	"os"

	"golang.org/x/sys/unix"
)

// dieWith only looks: macOS has no way to tie a process to its parent's life.
// An agent whose exec was killed goes on until it ends or is fenced.
func dieWith(parent int) bool { return os.Getppid() == parent }

// stoppedState is SSTOP of sys/proc.h.
const stoppedState = 4

// stopped says whether a signal or a debugger holds the child.
func (c *child) stopped() bool {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", c.pid())
	return err == nil && info.Proc.P_stat == stoppedState
}
