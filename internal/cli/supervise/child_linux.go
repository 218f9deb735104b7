package supervise

import (
	"bytes"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// dieWith makes the kernel kill this process when its parent dies. It returns false if
// the parent is dead already: an unsupervised agent must not run next to the one that
// replaces it.
func dieWith(parent int) bool {
	_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
	return os.Getppid() == parent
}

// stopped reports whether a signal or a debugger has stopped the child.
func (c *child) stopped() bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.pid()))
	if err != nil {
		return false
	}
	after := bytes.LastIndexByte(line, ')') // a name can contain anything
	return after >= 0 && len(line) > after+2 && (line[after+2] == 'T' || line[after+2] == 't')
}
