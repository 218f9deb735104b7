//go:build unix && !linux

package supervise

import "golang.org/x/sys/unix"

// left reports whether processes that the child has started are running.
func (c *child) left() bool { return c.group && unix.Kill(-c.pid(), 0) == nil }
