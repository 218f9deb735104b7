package supervise

import (
	"os"

	"golang.org/x/sys/unix"
)

// dieWith only checks the parent: macOS cannot tie a process to its parent's life. If
// exec is killed, its agent continues until it ends or is fenced.
func dieWith(parent int) bool { return os.Getppid() == parent }

// stoppedState is SSTOP of sys/proc.h.
const stoppedState = 4

// stopped reports whether a signal or a debugger has stopped the child.
func (c *child) stopped() bool {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", c.pid())
	return err == nil && info.Proc.P_stat == stoppedState
}

// otherNamespace returns false: this system has one space of process numbers.
func otherNamespace() bool { return false }
