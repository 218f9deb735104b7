package client

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
