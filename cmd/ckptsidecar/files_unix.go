//go:build unix

package main

import "os"

// syncFolder makes a rename survive a power loss.
func syncFolder(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
