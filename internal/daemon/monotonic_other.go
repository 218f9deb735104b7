//go:build !linux

package daemon

import "time"

// monotonic is asked for by systemd only, which is not here.
func monotonic() time.Duration { return 0 }
