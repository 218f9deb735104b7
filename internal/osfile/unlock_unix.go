//go:build unix

package osfile

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Unlock releases the lock of a file (flock) and closes the file. Closing it is not enough: a child that this process
// has just made, and that has not yet begun its own program, also has the file open and would keep the lock.
func Unlock(f *os.File) error {
	return errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), f.Close())
}
