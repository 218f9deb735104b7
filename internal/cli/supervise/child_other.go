//go:build unix && !linux && !darwin

package supervise

import "os"

// dieWith only checks the parent. If exec is killed, its agent continues until it ends or
// is fenced.
func dieWith(parent int) bool { return os.Getppid() == parent }

// stopped always returns false: this system does not report it. progress_timeout finds a
// child that hangs.
func (c *child) stopped() bool { return false }

// otherNamespace returns false: this system has one space of process numbers.
func otherNamespace() bool { return false }
