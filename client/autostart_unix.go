//go:build unix

package client

import "syscall"

// detached puts a process into its own session, so that signals from the terminal of this
// process do not reach it.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
