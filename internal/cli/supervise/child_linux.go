package supervise

import (
	"bytes"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// dieWith has the kernel kill this process when its parent dies, and answers
// false where that has happened already: an agent that nobody watches must not
// go on beside the one that is started in its place.
func dieWith(parent int) bool {
	_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
	return os.Getppid() == parent
}

// stopped says whether a signal or a debugger holds the child.
func (c *child) stopped() bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.pid()))
	if err != nil {
		return false
	}
	after := bytes.LastIndexByte(line, ')') // a name may hold anything
	return after >= 0 && len(line) > after+2 && (line[after+2] == 'T' || line[after+2] == 't')
}
