//go:build unix

package main

// commandWord quotes a word for the shell by which hooks are called.
func commandWord(word string) string { return shellWord(word) }
