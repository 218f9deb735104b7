package hook_test

import "path/filepath"

func socketIn(dir string) string { return `\\.\pipe\` + filepath.Base(dir) }
