//go:build !linux && !windows

package console

import "net"

// checksPeer is false: this system has no table that says whose a connection is.
const checksPeer = false

// admit lets everybody in: the link, the session's path and its cookie must do alone.
func admit(net.Conn) error { return nil }
