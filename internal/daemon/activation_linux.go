package daemon

import (
	"errors"
	"net"

	"github.com/coreos/go-systemd/v22/activation"
)

// inherited are the sockets that systemd hands over, and nobody after us, by the
// names that their units give them.
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

// keepSocketFile keeps the file of a socket that belongs to who made it.
func keepSocketFile(l net.Listener) net.Listener {
	if unix, ok := l.(*net.UnixListener); ok {
		unix.SetUnlinkOnClose(false)
	}
	return l
}
