package osfile

import (
	"os"

	"golang.org/x/sys/unix"
)

// SyncData waits until the bytes of a file are on the disk.
func SyncData(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }
