//go:build !linux

package main

import "os"

// syncData waits until a file's bytes are on the disk; only Linux can leave
// out the file's times.
func syncData(f *os.File) error { return f.Sync() }
