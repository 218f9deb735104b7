// Package endpoint opens and dials the place where agents and the daemon meet: a Unix
// socket on Linux and macOS, a named pipe on Windows. It also identifies the other end
// with the help of the kernel. Every permission of the daemon depends on this identity.
//
// # Identity of a peer
//
// The identity of a peer is read once, when its connection is accepted, and never again:
// SO_PEERCRED and SO_PEERGROUPS on Linux, LOCAL_PEERCRED and LOCAL_PEERPID on macOS, the
// token of the client's process on Windows. If a peer cannot be read, or may not connect,
// Accept closes its connection, and the listener continues. Nothing that a client sends
// influences its identity.
//
// # Which daemons a client trusts
//
// Before it sends the first byte, Dial asks the kernel who listens. It connects to root,
// to its own user and to the user of the service. For any other user, it returns a
// StrangerError. There are two ways in which root makes a user the user of the service:
//
//   - The socket's folder belongs to root, no other user can write in it, and the
//     socket in it belongs to the user, as SocketUser= of systemd makes it.
//   - The socket's folder belongs to the user, and only root can write in the
//     folders above it. It is the system's endpoint, or the user is a system
//     account: this distinguishes /run/ckptsidecar from /run/user/1000.
//
// A user who does not exist in the client's user namespace is a stranger.
//
// # Where a socket can be
//
// The folder of the socket belongs to root or to the daemon's user, and no other user may
// write in it: it has no write bit for group or others, sticky or not, so /tmp itself is
// refused. No folder above it may be writable by everybody, unless it is sticky, because
// its entries could be renamed. A missing folder is created, with mode 0755 for a
// system's daemon and 0700 for a user's own.
//
// The socket is bound inside a private folder (0700) next to its place, and gets its
// group and mode there. Then a rename that replaces nothing moves it into place.
// Therefore the socket is never visible with other permissions than the configured ones,
// whatever the umask, and never visible before it answers. PATH.lock is held from the
// first look at the path until Close. It makes it safe to start two daemons together. It
// stays behind, empty, because removing a lock file would be another race.
//
// # What this package may import
//
// The standard library, golang.org/x/sys and, on Windows,
// github.com/Microsoft/go-winio. Of this project only internal/osfile, which imports no more.
package endpoint
