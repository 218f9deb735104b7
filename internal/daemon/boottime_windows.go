package daemon

import (
	"time"

	"golang.org/x/sys/windows"
)

// boottime is the clock of a lease: it goes on while the machine sleeps, and nobody
// can set it.
func boottime() time.Duration { return windows.DurationSinceBoot() }
