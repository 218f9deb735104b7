package measure

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// processMemory returns how much memory of a process is resident now, and the most that
// ever was.
func processMemory(pid int) (now, highest int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("the memory of the daemon cannot be read: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch name {
		case "VmRSS":
			now = kib << 10
		case "VmHWM":
			highest = kib << 10
		}
	}
	if now == 0 {
		return 0, 0, fmt.Errorf("/proc/%d/status does not show the memory: the daemon may have ended", pid)
	}
	return now, highest, nil
}
