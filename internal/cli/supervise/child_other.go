//go:build unix && !linux && !darwin

package supervise

import "os"

// dieWith only looks; an agent whose exec was killed goes on until it ends or
// is fenced.
func dieWith(parent int) bool { return os.Getppid() == parent }

// stopped cannot be told here: a child that hangs is found by progress_timeout.
func (c *child) stopped() bool { return false }
