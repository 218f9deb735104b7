//go:build !linux

package daemon

import "time"

// monotonic is needed for systemd only, which this system does not have.
func monotonic() time.Duration { return 0 }
