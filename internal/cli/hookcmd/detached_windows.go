package hookcmd

import (
	"syscall"

	"golang.org/x/sys/windows"
)

// detached lets a process outlive this one and its console.
func detached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.DETACHED_PROCESS | windows.CREATE_NEW_PROCESS_GROUP}
}
