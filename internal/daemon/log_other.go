//go:build !linux && !windows

package daemon

// managersLog returns nil: launchd reads standard error.
func managersLog(bool) func(entry) error { return nil }
