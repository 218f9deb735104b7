//go:build !windows

package daemon

// checkDataFolder does nothing on systems with modes and owners: the code that opens the
// database checks those.
func checkDataFolder(string) error { return nil }
