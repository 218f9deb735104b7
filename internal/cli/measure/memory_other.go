//go:build !linux && !windows

package measure

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// processMemory returns how much memory of a process is resident now, as ps reports it.
// This system does not record the maximum: highest is 0.
func processMemory(pid int) (now, highest int64, err error) {
	text, err := exec.CommandContext(context.Background(), "ps", "-o", "rss=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return 0, 0, fmt.Errorf("the memory of the daemon cannot be read: %w", err)
	}
	kib, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("ps says %q of the daemon's memory", text)
	}
	return kib << 10, 0, nil
}
