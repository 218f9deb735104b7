//go:build unix

package hook_test

import "path/filepath"

func socketIn(dir string) string { return filepath.Join(dir, "s") }
