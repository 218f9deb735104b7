package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// allocate makes a file this long and takes the disk space for it.
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

// growIndex takes disk space for the index of the log in advance. SQLite grows the index when the commit is already in
// the log. If the disk has no space at that point, that is a fail-stop. growIndex uses SQLite's own handle: closing
// another handle would drop SQLite's locks.
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
