package client

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// SpoolDir is the folder in which this user's writes wait.
func SpoolDir() (string, error) {
	if dir := os.Getenv(EnvSpool); dir != "" {
		return dir, nil
	}
	return usualSpool()
}

// openFolder makes a folder for this user alone, or checks that it is one.
func openFolder(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() { // a link could lead into a folder that is not for this
		return fmt.Errorf("%s is not a folder", dir)
	}
	return checkOwner(dir, info)
}
