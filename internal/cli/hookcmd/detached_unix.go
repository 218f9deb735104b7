//go:build unix

package hookcmd

import "syscall"

// detached puts a process into its own session, which outlives this process.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
