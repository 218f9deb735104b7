//go:build unix

package hookcmd

import "github.com/ckptsidecar/ckptsidecar/internal/cli"

// commandWord quotes a word for the shell that runs hooks.
func commandWord(word string) string { return cli.ShellWord(word) }
