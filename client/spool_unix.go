//go:build unix

package client

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// usualSpool returns the default folder: XDG keeps data there that must survive a
// restart.
func usualSpool() (string, error) {
	if state := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "ckptsidecar", "spool"), nil
	}
	if home := os.Getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local/state/ckptsidecar/spool"), nil
	}
	return "", fmt.Errorf("no folder to spool to: set %s, XDG_STATE_HOME or HOME", EnvSpool)
}

// wholeEndpoint returns the whole path of a socket, "" for none: a relative one has another
// meaning for a client in another folder.
func wholeEndpoint(socket string) string {
	whole, err := filepath.Abs(socket)
	if socket == "" || err != nil {
		return socket
	}
	return whole
}

// checkOwner refuses a folder in which another user could add or remove files.
func checkOwner(dir string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case ok && int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to another user (uid %d): name a folder of your own with %s", dir, stat.Uid, EnvSpool)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("others may write to %s (mode %04o): chmod 700 it", dir, info.Mode().Perm())
	}
	return nil
}
