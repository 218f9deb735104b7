//go:build unix

package transfercmd

import (
	"errors"
	"syscall"
)

// processLives reports whether a process with this id exists. A process that may not be
// signaled counts as alive.
func processLives(pid int) bool {
	return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
