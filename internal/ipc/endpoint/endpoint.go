package endpoint

import (
	"errors"
	"fmt"
	"net"
	"os"
)

// EnvSocket is the environment variable with the endpoint that clients try first.
const EnvSocket = "CKPTSIDECAR_SOCKET"

// Peer is the process at the other end of a connection, as the kernel reports it.
type Peer struct {
	// Owner is the identity that agents belong to: "uid:1000" on Unix, a SID such as
	// "S-1-5-21-…" on Windows.
	Owner string
	// PID is the peer's process, or 0 if the kernel does not report it. It is only a
	// hint: pids are reused, and the process may have passed the socket to another one.
	PID int
	// Admin is set for root and for members of Options.AdminGroup. On Windows it is set
	// for LocalSystem and for elevated Administrators. In a user's own daemon it is also
	// set for that user.
	Admin bool
}

// PeerConn is a connection that a listener of this package accepted.
type PeerConn interface {
	net.Conn
	// Peer returns the process that connected. It was read at accept and does not change.
	Peer() Peer
}

// PeerOf returns the process at the other end of a connection that a listener of this
// package accepted. It returns false for every other connection.
func PeerOf(c net.Conn) (Peer, bool) {
	pc, ok := c.(PeerConn)
	if !ok {
		return Peer{}, false
	}
	return pc.Peer(), true
}

// Options say where to listen and who may connect.
type Options struct {
	// Path is the socket's path, or \\.\pipe\name on Windows. A relative socket path is
	// relative to the working directory.
	Path string
	// Mode is the permission of the socket. 0 means 0660, or 0600 with SingleUser. It has
	// no effect on Windows.
	Mode os.FileMode
	// Group is the group that owns the socket, by name or number; "" does not change it.
	// On Windows it is the group, by name or SID, that may open the pipe, and "" means
	// every authenticated local user.
	Group string
	// AdminGroup is the group whose members are admins in addition to root, by name,
	// number or SID. "" means only root (Administrators).
	AdminGroup string
	// SingleUser marks a user's own daemon: only that user and root (Administrators) get
	// past accept.
	SingleUser bool
	// Report, if set, is called for each connection that was closed at accept, and for
	// each accept that failed and is tried again. It must not block.
	Report func(error)
}

var (
	// ErrInUse means that a daemon already answers at the path.
	ErrInUse = errors.New("already running")
	// ErrRefused is in every error about a peer whose connection was closed at accept.
	ErrRefused = errors.New("connection refused at accept")
	// ErrIdentityMap means that this process cannot tell the kernel's user ids apart.
	ErrIdentityMap = errors.New("not the identity map")
)

// OccupiedError means that something that does not belong to the daemon is at the place
// of the endpoint. It is never removed or taken over.
type OccupiedError struct {
	Path string
	What string // "a folder", "a live socket of uid:1000", …
	Fix  string // what to do about it
}

func (e *OccupiedError) Error() string {
	return fmt.Sprintf("%s is in the way at %s: %s", e.What, e.Path, e.Fix)
}

func inUse(path, sign string) error {
	return fmt.Errorf("%w: %s at %s; stop the other daemon, or choose another endpoint with --socket", ErrInUse, sign, path)
}

func refused(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrRefused, fmt.Errorf(format, args...))
}
