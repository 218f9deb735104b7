package osfile

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// Lock takes the exclusive lock of a file (LockFileEx), or returns ErrLocked at once.
func Lock(f *os.File) error {
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0,
		new(windows.Overlapped))
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrLocked
	}
	return err
}

// Unlock releases the lock of a file, which closing the file drops.
func Unlock(f *os.File) error { return f.Close() }
