//go:build linux || darwin

package endpoint

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// lockBeside takes PATH.lock until osfile.Unlock. Without it, if two
// daemons found the same stale socket, the slower one would remove the live socket that
// the faster one has just created.
func lockBeside(path string) (*os.File, error) {
	f, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock of the socket: %w; remove that file if no daemon runs", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		err = inUse(path, "another daemon holds the lock")
	case err != nil:
		err = fmt.Errorf("lock %s: %w", f.Name(), err)
	default:
		err = f.Chmod(0o600) // the umask may have removed the daemon's own rights to it
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
