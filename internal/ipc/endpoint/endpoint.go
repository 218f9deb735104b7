package endpoint

import (
	"errors"
	"fmt"
	"net"
	"os"
)

// EnvSocket names the environment variable that clients try first.
const EnvSocket = "CKPTSIDECAR_SOCKET"

// Peer is who is at the other end of a connection, as the kernel says it.
type Peer struct {
	// Owner is the identity that agents are keyed by: "uid:1000" on Unix, a SID
	// such as "S-1-5-21-…" on Windows.
	Owner string
	// PID is the peer's process, or 0 where the kernel does not say. It is only
	// a hint: pids are reused, and the process may have handed the socket on.
	PID int
	// Admin is set for root and for members of Options.AdminGroup. On Windows it
	// is set for LocalSystem and for Administrators who are elevated. In a user's
	// own daemon it is set for that user too.
	Admin bool
}

// PeerConn is what a listener of this package accepts.
type PeerConn interface {
	net.Conn
	// Peer is who connected. It was read at accept and does not change.
	Peer() Peer
}

// PeerOf says who is at the other end of a connection that a listener of this
// package accepted, and false for every other connection.
func PeerOf(c net.Conn) (Peer, bool) {
	pc, ok := c.(PeerConn)
	if !ok {
		return Peer{}, false
	}
	return pc.Peer(), true
}

// Options say where to listen and whom to let in.
type Options struct {
	// Path is the socket's path, or \\.\pipe\name on Windows. A relative socket
	// path is taken from the working directory.
	Path string
	// Mode is the permission of the socket. 0 means 0660, or 0600 with
	// SingleUser. Windows has no use for it.
	Mode os.FileMode
	// Group is the group that owns the socket, by name or number; "" leaves it.
	// On Windows it is the group, by name or SID, that may open the pipe, and ""
	// means every authenticated local user.
	Group string
	// AdminGroup is the group whose members are admins besides root, by name,
	// number or SID. "" means root (Administrators) only.
	AdminGroup string
	// SingleUser marks a user's own daemon: nobody but that user and root
	// (Administrators) gets past accept.
	SingleUser bool
	// Report, if set, is told of each connection that was closed at accept and
	// of each accept that failed and is tried again. It must not block.
	Report func(error)
}

var (
	// ErrInUse means that a daemon already answers at the path.
	ErrInUse = errors.New("already running")
	// ErrRefused is in every error about a peer that was closed at accept.
	ErrRefused = errors.New("connection refused at accept")
	// ErrIdentityMap means that the kernel's user ids cannot be told apart here.
	ErrIdentityMap = errors.New("not the identity map")
)

// OccupiedError says that something which is not ours is where the endpoint
// should be. It is never removed or taken over.
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
