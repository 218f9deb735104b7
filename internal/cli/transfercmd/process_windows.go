package transfercmd

import (
	"errors"

	"golang.org/x/sys/windows"
)

// processLives reports whether a process with this id runs. A process that may not be
// opened counts as alive.
func processLives(pid int) bool {
	process, err := windows.OpenProcess(windows.SYNCHRONIZE, false, uint32(pid))
	if err != nil {
		return !errors.Is(err, windows.ERROR_INVALID_PARAMETER)
	}
	defer windows.CloseHandle(process)
	// A process that has ended keeps its number while another process holds it open.
	event, err := windows.WaitForSingleObject(process, 0)
	return err != nil || event != windows.WAIT_OBJECT_0
}
