package rewind

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

// mostOpen is 0, because an open folder could not be removed or renamed.
const mostOpen = 0

// noWait is not needed on Windows.
const noWait = 0

// deviceOf returns 0: Windows tells the file system only of open files.
func deviceOf(fs.FileInfo) uint64 { return 0 }

// inUse reports that another process holds a file.
func inUse(err error) bool {
	return errors.Is(err, windows.ERROR_SHARING_VIOLATION) || errors.Is(err, windows.ERROR_ACCESS_DENIED) ||
		errors.Is(err, windows.ERROR_LOCK_VIOLATION)
}

// syncFolder does nothing: NTFS journals names by itself.
func syncFolder(*os.Root, string) error { return nil }
