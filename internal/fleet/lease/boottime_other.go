//go:build !linux && !windows

package lease

import (
	"time"

	"golang.org/x/sys/unix"
)

// Boottime is the clock of a lease. On macOS, CLOCK_MONOTONIC goes on while the machine
// sleeps, and nobody can set it.
func Boottime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 1<<63 - 1 // a clock that cannot be read ends every lease
	}
	return time.Duration(now.Nano())
}
