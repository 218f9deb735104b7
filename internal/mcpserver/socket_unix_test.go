//go:build unix

package mcpserver_test

import "path/filepath"

func socketIn(dir string) string { return filepath.Join(dir, "s") }
