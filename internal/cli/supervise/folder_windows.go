package supervise

import (
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

// lockExec takes the lock of a folder. The lock ends together with the process.
func lockExec(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1,
		0, new(windows.Overlapped))
}

// isMine returns true: the temporary files of a user are in a folder of that user.
func isMine(fs.FileInfo) bool { return true }
