//go:build !windows

package daemon

// checkDataFolder has nothing to say where modes and owners rule: opening the
// database looks at those.
func checkDataFolder(string) error { return nil }
