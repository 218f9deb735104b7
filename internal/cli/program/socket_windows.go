package program

import "path/filepath"

// OwnSocket returns the name of a pipe for a private folder. Pipes are in no folder.
func OwnSocket(folder string) string { return `\\.\pipe\` + filepath.Base(folder) }
