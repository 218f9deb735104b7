//go:build unix

package db

import "os"

// syncFolder makes a new name in a folder survive a power cut.
func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
