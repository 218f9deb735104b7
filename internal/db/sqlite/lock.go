package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

// takeLock takes the lock that keeps a second process away from a database.
func takeLock(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, &OperatorError{"the folder of the database cannot be created: create it, mount a volume there, or choose another with --db", err}
	}
	lock, err := lockSoon(path + ".lock")
	switch {
	case err == nil:
		return lock, nil
	case errors.Is(err, ErrLocked):
		return nil, fmt.Errorf("%w: %s has the database %s open", ErrLocked, daemonOf(path), path)
	}
	return nil, &OperatorError{fmt.Sprintf("the folder of %s cannot be written: check who owns it", path), err}
}

// daemonOf names the daemon that has the lock of a database.
func daemonOf(path string) string {
	if pid := lockedBy(path + ".lock").pid; pid > 0 {
		return fmt.Sprintf("another daemon (pid %d)", pid)
	}
	return "another daemon"
}

// lockSoon tries for a moment, because two processes may hold the lock a little longer: a process
// that has just ended, and a child that another process has just made and that has not yet begun
// its own program.
func lockSoon(path string) (f *os.File, err error) {
	for range 20 {
		if f, err = osfile.LockAt(path); !errors.Is(err, osfile.ErrLocked) {
			return f, err
		}
		time.Sleep(15 * time.Millisecond)
	}
	return nil, ErrLocked
}

func (e *Engine) takeLock(context.Context) (err error) {
	if e.opt.Lock == nil {
		e.lock, err = takeLock(e.opt.Path)
	}
	return err
}
