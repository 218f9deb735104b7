package osfile

import (
	"errors"
	"os"
)

// ErrLocked means that another process, or another open file of this one, has the lock.
var ErrLocked = errors.New("another process has the lock")

// LockAt opens the file at a path, or makes it, and takes its exclusive lock. It returns ErrLocked at once if it cannot,
// and also if the file was removed before it had the lock: the next attempt makes another. It follows no link. The lock
// ends with Unlock, and with the process, however the process ends.
func LockAt(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|noFollow, 0o600)
	if err != nil {
		return nil, err
	}
	if err = Lock(f); err == nil {
		if names(path, f) {
			return f, nil
		}
		err = ErrLocked
	}
	_ = f.Close()
	return nil, err
}

// names says whether a path still names an open file.
func names(path string, f *os.File) bool {
	opened, err1 := f.Stat()
	named, err2 := os.Lstat(path)
	return err1 == nil && err2 == nil && os.SameFile(opened, named)
}
