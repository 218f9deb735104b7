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

// probeTime bounds the question whether somebody answers. A daemon that is
// stopped (SIGSTOP) still accepts into its backlog, so the answer is quick.
const probeTime = 2 * time.Second

// clearWay makes sure that nothing is at the path. The one thing it removes is
// a socket of our own user that nobody listens on.
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

// checkSocket returns nil for a socket that may be replaced.
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

// answers dials. Only a refusal says that nobody listens; a full backlog or a
// slow answer comes from somebody.
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
