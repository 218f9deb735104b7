package endpoint

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/Microsoft/go-winio"
	"golang.org/x/sys/windows"
)

// dialTime limits the wait for a free instance of the pipe. go-winio would wait for as
// long as the context lives.
const dialTime = 5 * time.Second

// dial opens the pipe anonymously: the daemon asks the kernel for the client's process
// anyway, and a squatter gets no identity that it could impersonate.
func dial(ctx context.Context, path string) (net.Conn, error) {
	if err := checkName(path); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	c, err := winio.DialPipeAccess(ctx, path, clientRights)
	if err != nil {
		return nil, err
	}
	if err := checkOwner(c); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// isStale is always false: a pipe disappears together with its last server.
func isStale(error) bool { return false }

// isBusy reports whether the pipe exists but no instance became free in time.
func isBusy(err error) bool {
	return errors.Is(err, windows.ERROR_PIPE_BUSY) || errors.Is(err, context.DeadlineExceeded)
}

// howToJoin says who may connect.
func howToJoin(string) string { return "the daemon's users are those of the access list of its pipe" }
