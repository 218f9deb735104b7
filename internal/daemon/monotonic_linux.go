package daemon

import (
	"time"

	"golang.org/x/sys/unix"
)

// monotonic returns the clock by which systemd recognizes that a reload is newer than
// another.
func monotonic() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0
	}
	return time.Duration(now.Nano())
}
