//go:build !linux

package daemon

import "net"

// inherited returns nothing: only systemd passes sockets.
func inherited() (map[string][]net.Listener, error) { return nil, nil }
