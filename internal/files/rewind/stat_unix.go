//go:build unix

package rewind

import (
	"io/fs"
	"os"
	"syscall"
)

// mostOpen is the most folders that are kept open.
const mostOpen = 256

// noWait keeps the open of a named pipe from blocking.
const noWait = syscall.O_NONBLOCK

// deviceOf returns the file system that a file is on.
func deviceOf(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Dev)
	}
	return 0
}

// inUse reports that another process holds a file. Only Windows tells that.
func inUse(error) bool { return false }

// syncFolder makes the names in a folder durable.
func syncFolder(root *os.Root, folder string) error {
	if folder == "" {
		folder = "."
	}
	f, err := root.Open(folder)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
