package client

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/windows"
)

// usualSpool returns the default folder, below the user's local data.
func usualSpool() (string, error) {
	if local := os.Getenv("LocalAppData"); filepath.IsAbs(local) {
		return filepath.Join(local, "ckptsidecar", "spool"), nil
	}
	return "", fmt.Errorf("no folder to spool to: set %s or LocalAppData", EnvSpool)
}

// wholeEndpoint does nothing: the name of a pipe is always whole.
func wholeEndpoint(pipe string) string { return pipe }

// checkOwner does nothing: everything below LocalAppData belongs to the user.
func checkOwner(string, fs.FileInfo) error { return nil }

// isGone reports whether no process on this machine runs with this id.
func isGone(pid int) bool {
	h, err := windows.OpenProcess(windows.SYNCHRONIZE, false, uint32(pid))
	if err != nil {
		return err == windows.ERROR_INVALID_PARAMETER
	}
	defer windows.CloseHandle(h)
	// A process that has ended keeps its id while another process holds it open.
	event, err := windows.WaitForSingleObject(h, 0)
	return err == nil && event == windows.WAIT_OBJECT_0
}
