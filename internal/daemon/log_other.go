//go:build !linux && !windows

package daemon

// managersLog answers none: launchd takes what comes on standard error.
func managersLog(bool) func(entry) error { return nil }
