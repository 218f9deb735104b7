//go:build !linux

package osfile

import "os"

// SyncData waits until the bytes of a file are on the disk. Only Linux can leave out the times of
// the file.
func SyncData(f *os.File) error { return f.Sync() }
