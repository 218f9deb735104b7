package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// allocate makes a file so long and takes the room for it.
func allocate(f *os.File, from, to int64) error {
	for {
		err := syscall.Fallocate(int(f.Fd()), 0, 0, to)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.ENOSYS):
			return fill(f, from, to)
		default:
			return err
		}
	}
}

// growIndex takes room for the index of the log beforehand. SQLite makes the index longer when the commit
// is already in the log, where a disk without room would be a fail-stop. It does so through SQLite's own handle:
// to close another one would drop SQLite's locks.
func growIndex(path string, size int64) error {
	index, err := os.Stat(path)
	if err != nil {
		return err
	}
	const handles = "/proc/self/fd"
	entries, err := os.ReadDir(handles)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		info, err := os.Stat(filepath.Join(handles, entry.Name()))
		if err != nil || !os.SameFile(info, index) {
			continue
		}
		fd, err := strconv.Atoi(entry.Name())
		if err != nil {
			return err
		}
		return syscall.Fallocate(fd, 0, 0, size)
	}
	return os.ErrNotExist
}
