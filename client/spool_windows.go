package client

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/windows"
)

// usualSpool is below the user's local data.
func usualSpool() (string, error) {
	if local := os.Getenv("LocalAppData"); filepath.IsAbs(local) {
		return filepath.Join(local, "ckptsidecar", "spool"), nil
	}
	return "", fmt.Errorf("no folder to spool to: set %s or LocalAppData", EnvSpool)
}

// checkOwner has nothing to do: what is below LocalAppData is the user's.
func checkOwner(string, fs.FileInfo) error { return nil }

// isGone says whether no process of this machine has a number.
func isGone(pid int) bool {
	h, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if err != nil {
		return err == windows.ERROR_INVALID_PARAMETER
	}
	_ = windows.CloseHandle(h)
	return false
}
