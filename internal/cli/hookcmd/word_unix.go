//go:build unix

package hookcmd

import "github.com/ckptsidecar/ckptsidecar/internal/cli"

// commandWord quotes a word for the shell by which hooks are called.
func commandWord(word string) string { return cli.ShellWord(word) }
