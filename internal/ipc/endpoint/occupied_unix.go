//go:build linux || darwin

package endpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// probeTime limits the check whether a program answers. A daemon that is stopped
// (SIGSTOP) still accepts into its backlog, so the check is quick.
const probeTime = 2 * time.Second

// clearWay makes sure that nothing is at the path. The only thing that it removes is a
// socket of the daemon's own user on which no program listens.
func clearWay(ctx context.Context, path string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("check the path of the socket: %w", err)
	}
	if fi.Mode()&os.ModeSocket == 0 {
		return &OccupiedError{Path: path, What: kind(fi.Mode()), Fix: "remove it, or choose another path with --socket"}
	}
	if err := checkSocket(ctx, path, ownerOf(fi)); err != nil {
		return err
	}
	if err := unix.Unlink(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the stale socket %s: %w", path, err)
	}
	return nil
}

// checkSocket returns nil for a socket that can be replaced.
func checkSocket(ctx context.Context, path string, owner uint32) error {
	ours := int(owner) == os.Geteuid()
	alive, err := answers(ctx, path)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return &OccupiedError{path, fmt.Sprintf("a socket of uid:%d that cannot be checked (%v)", owner, err),
			"stop the program that uses it and remove it, or choose another path with --socket"}
	case alive && ours:
		return inUse(path, "somebody answers")
	case alive:
		return &OccupiedError{path, fmt.Sprintf("a live socket of uid:%d", owner),
			"it belongs to another user's program; choose another path with --socket"}
	case !ours:
		return &OccupiedError{path, fmt.Sprintf("a stale socket of uid:%d", owner),
			"remove it, or run the daemon as that user, or choose another path with --socket"}
	}
	return nil
}

// answers dials the path. Only a refused connection means that no program listens. If the
// backlog is full or the answer is slow, a program listens.
func answers(ctx context.Context, path string) (bool, error) {
	c, err := (&net.Dialer{Timeout: probeTime}).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		return true, c.Close()
	case isStale(err), errors.Is(err, fs.ErrNotExist):
		return false, nil
	case isBusy(err), errors.Is(err, os.ErrDeadlineExceeded):
		return true, nil
	}
	return false, err
}

func kind(m fs.FileMode) string {
	switch {
	case m.IsRegular():
		return "a regular file"
	case m.IsDir():
		return "a folder"
	case m&fs.ModeSymlink != 0:
		return "a symbolic link"
	case m&fs.ModeNamedPipe != 0:
		return "a FIFO"
	}
	return "a device"
}
