//go:build !windows

package host

// machineSID is for Windows.
func machineSID() string { return "" }
