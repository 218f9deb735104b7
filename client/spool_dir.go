package client

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// SpoolDir returns the folder in which this user's writes wait.
func SpoolDir() (string, error) {
	if dir := os.Getenv(EnvSpool); dir != "" {
		return dir, nil
	}
	return usualSpool()
}

// openFolder creates a folder for this user only, or checks that an existing one is
// private.
func openFolder(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return checkFolder(dir)
}

// checkFolder refuses a folder in which another user could add or remove files. There is
// nothing wrong with a folder that does not exist yet.
func checkFolder(dir string) error {
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.IsDir() { // a link could lead to a folder that has another purpose
		return fmt.Errorf("%s is not a folder", dir)
	}
	return checkOwner(dir, info)
}
