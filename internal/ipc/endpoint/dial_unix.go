//go:build linux || darwin

package endpoint

import (
	"context"
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

func dial(ctx context.Context, path string) (net.Conn, error) {
	abs, err := absolute(path)
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", abs)
	if err != nil {
		return nil, err
	}
	if err := checkListener(c, abs); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// isStale reports whether the socket file exists but no program listens behind it.
func isStale(err error) bool { return errors.Is(err, unix.ECONNREFUSED) }

// isBusy reports whether the listener exists but its backlog is full.
func isBusy(err error) bool { return errors.Is(err, unix.EAGAIN) }
