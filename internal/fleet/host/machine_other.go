//go:build !windows

package host

// machineSID returns "": only Windows has SIDs.
func machineSID() string { return "" }
