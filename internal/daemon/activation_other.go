//go:build !linux

package daemon

import "net"

// inherited answers none: only systemd hands sockets over.
func inherited() ([]net.Listener, error) { return nil, nil }
