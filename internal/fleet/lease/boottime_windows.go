package lease

import (
	"time"

	"golang.org/x/sys/windows"
)

// Boottime is the clock of a lease. It goes on while the machine sleeps, and nobody can
// set it.
func Boottime() time.Duration { return windows.DurationSinceBoot() }
