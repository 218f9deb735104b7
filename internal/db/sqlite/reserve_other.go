//go:build !linux

package sqlite

import "os"

// allocate makes a file this long and takes the disk space for it.
func allocate(f *os.File, from, to int64) error { return fill(f, from, to) }

// growIndex does nothing: on this system the file must not be opened beside SQLite.
func growIndex(string, int64) error { return nil }
