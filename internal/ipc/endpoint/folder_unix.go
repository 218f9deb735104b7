//go:build linux || darwin

package endpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// prepareFolder creates the socket's folder if it is missing, and checks that only root
// and the daemon's user can change its content. doc.go has the rule.
func prepareFolder(dir string, mode os.FileMode) error {
	if err := checkAbove(dir); err != nil {
		return err
	}
	if err := makeFolder(dir, mode); err != nil {
		return fmt.Errorf("make the socket's folder: %w", err)
	}
	if err := checkFolder(dir); err != nil {
		return err
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil || real == dir {
		return err
	}
	return checkAbove(real)
}

// makeFolder creates missing folders, with exactly this mode whatever the umask.
func makeFolder(dir string, mode os.FileMode) error {
	err := os.Mkdir(dir, mode)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeFolder(filepath.Dir(dir), mode); err != nil {
			return err
		}
		err = os.Mkdir(dir, mode)
	}
	if err == nil {
		return os.Chmod(dir, mode)
	}
	if fi, statErr := os.Stat(dir); statErr == nil && fi.IsDir() {
		return nil // it existed, which is not EEXIST on a read-only parent
	}
	return err
}

func checkFolder(dir string) error {
	fi, err := os.Stat(dir)
	if err != nil {
		return err
	}
	const fix = "make one that only the daemon's user can write, or choose another path with --socket"
	if uid := ownerOf(fi); uid != 0 && int(uid) != os.Geteuid() {
		return fmt.Errorf("the socket's folder %s belongs to uid %d, who could replace the socket: %s", dir, uid, fix)
	}
	if fi.Mode()&0o022 != 0 {
		return fmt.Errorf("the socket's folder %s is %v, so others than its owner could replace the socket: %s", dir, fi.Mode(), fix)
	}
	return nil
}

// checkAbove checks every folder up to the root. It ignores owners and groups, because
// sandboxes show odd ones for safe folders.
func checkAbove(dir string) error {
	for up := filepath.Dir(dir); ; up = filepath.Dir(up) {
		fi, err := os.Stat(up)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("check the folders above the socket: %w", err)
		}
		if err == nil && fi.Mode()&0o002 != 0 && fi.Mode()&os.ModeSticky == 0 {
			return fmt.Errorf("everybody can write in %s (%v), above the socket, and so replace the folder in it: take that "+
				"right away (chmod o-w), or choose another path with --socket", up, fi.Mode())
		}
		if up == filepath.Dir(up) {
			return nil
		}
	}
}

func ownerOf(fi fs.FileInfo) uint32 { return fi.Sys().(*syscall.Stat_t).Uid }
