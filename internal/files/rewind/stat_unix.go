//go:build unix

package rewind

import (
	"os"
	"syscall"
)

// mostOpen is how many folders are kept open.
const mostOpen = 256

// noWait keeps the open of a named pipe from waiting.
const noWait = syscall.O_NONBLOCK

// inUse says that another process holds a file: only Windows knows that.
func inUse(error) bool { return false }

// syncFolder makes the names of a folder last.
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
