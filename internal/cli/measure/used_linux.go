package measure

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of processor time in /proc. Every Linux kernel reports a
// hundredth of a second to programs.
const clockTick = 10 * time.Millisecond

// usedBy returns what a process has used since its start.
func usedBy(pid int) (used, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return used{}, fmt.Errorf("the processor time of the daemon cannot be read: %w", err)
	}
	_, rest, _ := strings.Cut(string(text), ") ") // after the name, which can contain anything but this
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return used{}, fmt.Errorf("/proc/%d/stat says %q", pid, text)
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return used{}, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	if err != nil {
		return used{}, err
	}
	u := used{known: true, cpu: time.Duration(user+system) * clockTick}
	io, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return used{}, fmt.Errorf("what the daemon has written cannot be read: %w", err)
	}
	for line := range strings.Lines(string(io)) {
		if value, is := strings.CutPrefix(line, "write_bytes: "); is {
			u.written, err = strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		}
	}
	return u, err
}
