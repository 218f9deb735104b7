//go:build unix

package sqlite

import (
	"errors"
	"os"
	"syscall"
)

// lockFile takes an exclusive lock on a separate file beside the database. The kernel drops the
// lock when the process ends, however it ends.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil && !named(f, path) { // another process removed it before we had its lock: the next try makes another
		err = syscall.EWOULDBLOCK
	}
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, ErrLocked
	}
	return nil, err
}

// named says whether a path still names an open file.
func named(f *os.File, path string) bool {
	ours, err1 := f.Stat()
	theirs, err2 := os.Lstat(path)
	return err1 == nil && err2 == nil && os.SameFile(ours, theirs)
}
