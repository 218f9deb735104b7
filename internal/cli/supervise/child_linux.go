package supervise

import (
	"bytes"
	"os"
	"strconv"

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
	state, _ := stat(strconv.Itoa(c.pid()))
	return state == 'T' || state == 't'
}

// left reports whether processes that the child has started are running. Zombies, which nobody
// collects in some containers, do not count.
func (c *child) left() bool {
	if !c.group || unix.Kill(-c.pid(), 0) != nil {
		return false
	}
	entries, err := os.ReadDir("/proc")
	for _, entry := range entries {
		if state, group := stat(entry.Name()); group == c.pid() && state != 'Z' && state != 'X' {
			return true
		}
	}
	return err != nil
}

// stat returns the state and the group of a process, or 0 and 0 if it is gone.
func stat(pid string) (state byte, group int) {
	line, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, 0
	}
	fields := bytes.Fields(line[bytes.LastIndexByte(line, ')')+1:]) // a name can contain anything
	if len(fields) < 3 {
		return 0, 0
	}
	group, _ = strconv.Atoi(string(fields[2]))
	return fields[0][0], group
}

// otherNamespace reports whether this process is in a process namespace of its own, as in a container. The kernel gives the first
// namespace of a machine a fixed number.
func otherNamespace() bool {
	link, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && link != "pid:[4026531836]"
}
