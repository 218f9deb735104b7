package db

import (
	"errors"
	"os"
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
