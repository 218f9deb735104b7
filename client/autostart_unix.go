//go:build unix

package client

import "syscall"

// detached puts a process into a session of its own, which no signal to this
// one's terminal reaches.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
