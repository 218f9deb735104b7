//go:build unix

package hookcmd

import "syscall"

// detached puts a process into a session of its own, which outlives this one.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
