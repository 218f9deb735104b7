package daemon

import (
	"errors"
	"net"

	"github.com/coreos/go-systemd/v22/activation"
)

// inherited returns the sockets that systemd passed to this process, by the names in
// their units. Child processes do not inherit them.
func inherited() (map[string][]net.Listener, error) {
	named, err := activation.ListenersWithNames()
	for _, list := range named {
		for i, l := range list {
			if l == nil {
				return nil, errors.New("one of them is not a listening stream socket")
			}
			list[i] = keepSocketFile(l)
		}
	}
	return named, err
}

// keepSocketFile makes sure that closing the socket keeps its file: the file belongs to
// systemd, which created it.
func keepSocketFile(l net.Listener) net.Listener {
	if unix, ok := l.(*net.UnixListener); ok {
		unix.SetUnlinkOnClose(false)
	}
	return l
}
