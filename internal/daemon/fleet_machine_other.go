//go:build !windows

package daemon

// machineSID is for Windows.
func machineSID() string { return "" }
