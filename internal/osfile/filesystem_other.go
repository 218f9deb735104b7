//go:build !linux

package osfile

// FileSystem reports whether a folder is in memory or on the network. It knows only the file
// systems of Linux.
func FileSystem(string) (memory, network bool) { return false, false }
