//go:build linux || darwin

package endpoint

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"
)

// passingErrnos are the errors of accept that say nothing about the listener: the peer
// went away, a security module objects to it, or descriptors or memory are short for the
// moment.
var passingErrnos = []unix.Errno{
	unix.EMFILE, unix.ENFILE, unix.ECONNABORTED, unix.ENOBUFS, unix.ENOMEM,
	unix.EINTR, unix.EAGAIN, unix.EPROTO, unix.EPERM, unix.EACCES,
}

func passing(err error) bool {
	var no unix.Errno
	return errors.As(err, &no) && slices.Contains(passingErrnos, no)
}
