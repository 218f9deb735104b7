// Package endpoint opens and dials the place where agents and the daemon meet:
// a Unix socket on Linux and macOS, a named pipe on Windows. It also says who
// is at the other end, because the kernel's word about that is what every
// permission of the daemon rests on.
//
// # Who
//
// The identity of a peer is read once, when its connection is accepted, and
// never again: SO_PEERCRED and SO_PEERGROUPS on Linux, LOCAL_PEERCRED and
// LOCAL_PEERPID on macOS, the token of the client's process on Windows. A
// connection whose peer cannot be read, or may not connect, is closed inside
// Accept and the listener goes on. Nothing a client sends takes part in it.
//
// # Whom a client speaks to
//
// Dial asks the kernel who listens, before the first byte. It speaks to root, to
// its own user and to the user of the service. Anybody else is a StrangerError.
// There are two ways in which root makes a user the service's:
//
//   - The socket's folder belongs to root, nobody else can write in it, and the
//     socket in it belongs to the user, as SocketUser= of systemd makes it.
//   - The socket's folder belongs to the user, and nobody but root can write in
//     the folders above it. It is the system's endpoint, or the user is a system
//     account: this tells /run/ckptsidecar from /run/user/1000.
//
// A user who has no place in the client's user namespace is a stranger.
//
// # Where a socket may lie
//
// The folder of the socket belongs to root or to the daemon's user, and nobody
// else may write in it: no write bit for group or others, sticky or not, so
// /tmp itself is refused. No folder above it may be writable by everybody,
// unless it is sticky, because its entries could be renamed away. A missing
// folder is made, 0755 for a system's daemon and 0700 for a user's own.
//
// The socket is bound inside a private folder (0700) beside its place, gets its
// group and mode there, and is then moved into place by a rename that replaces
// nothing. So it is never seen with other permissions than those configured,
// whatever the umask, and never seen before it answers. PATH.lock is held from
// the first look at the path until Close; it is what makes two daemons that
// start together safe, and it stays behind, empty, because removing a lock file
// is a race of its own.
//
// # What this package may import
//
// The standard library, golang.org/x/sys and, on Windows,
// github.com/Microsoft/go-winio. Nothing of ours.
package endpoint
