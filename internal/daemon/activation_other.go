//go:build !linux

package daemon

import "net"

// inherited answers none: only systemd hands sockets over.
func inherited() (map[string][]net.Listener, error) { return nil, nil }
