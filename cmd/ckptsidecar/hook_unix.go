//go:build unix

package main

import "github.com/ckptsidecar/ckptsidecar/internal/cli"

// commandWord quotes a word for the shell by which hooks are called.
func commandWord(word string) string { return cli.ShellWord(word) }
