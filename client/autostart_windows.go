package client

import (
	"syscall"

	"golang.org/x/sys/windows"
)

// detached gives a process no console, so that closing the console of this process does
// not end it.
func detached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.DETACHED_PROCESS | windows.CREATE_NEW_PROCESS_GROUP}
}
