package lease

import (
	"time"

	"golang.org/x/sys/unix"
)

// Boottime is the clock of a lease. It goes on while the machine sleeps, and nobody can
// set it.
func Boottime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 1<<63 - 1 // a clock that cannot be read ends every lease
	}
	return time.Duration(now.Nano())
}
