//go:build !linux

package sqlite

import "os"

// allocate makes a file so long and takes the room for it.
func allocate(f *os.File, from, to int64) error { return fill(f, from, to) }

// growIndex does nothing: on this system the file may not be opened beside SQLite.
func growIndex(string, int64) error { return nil }
