//go:build unix

package main

import (
	"os"
	"path/filepath"
	"syscall"
)

var stopSignals = []os.Signal{os.Interrupt, syscall.SIGTERM}

// ownSocket is an endpoint that only this process's folder has.
func ownSocket(folder string) string { return filepath.Join(folder, "sock") }
