//go:build linux || darwin

package endpoint

import (
	"errors"
	"fmt"
	"os"

	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

// lockBeside takes PATH.lock until osfile.Unlock. Without it, if two
// daemons found the same stale socket, the slower one would remove the live socket that
// the faster one has just created.
func lockBeside(path string) (*os.File, error) {
	f, err := osfile.LockAt(path + ".lock")
	switch {
	case errors.Is(err, osfile.ErrLocked):
		return nil, inUse(path, "another daemon holds the lock")
	case err != nil:
		return nil, fmt.Errorf("lock of the socket: %w; remove that file if no daemon runs", err)
	}
	if err := f.Chmod(0o600); err != nil { // the umask may have removed the daemon's own rights to it
		return nil, errors.Join(err, osfile.Unlock(f))
	}
	return f, nil
}
