// Package program starts ckptsidecar as a child process: one call of a command, or a
// daemon that belongs to the command that started it.
//
// This package may import internal/ipc/client.
package program
