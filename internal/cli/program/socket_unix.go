//go:build unix

package program

import "path/filepath"

// OwnSocket returns the path of a socket in a private folder.
func OwnSocket(folder string) string { return filepath.Join(folder, "sock") }
