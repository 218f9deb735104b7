package daemon

import (
	"time"

	"golang.org/x/sys/unix"
)

// monotonic is the clock by which systemd tells a reload from an older one.
func monotonic() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0
	}
	return time.Duration(now.Nano())
}
