package main

import (
	"os"
	"syscall"
)

// dropCaches drops the file caches, so that the next read of a file reads the disk. Only root can
// do this.
func dropCaches() error {
	syscall.Sync()
	return os.WriteFile("/proc/sys/vm/drop_caches", []byte("3\n"), 0)
}
