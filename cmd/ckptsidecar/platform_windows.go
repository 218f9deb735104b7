package main

import (
	"os"
	"syscall"
)

// Windows sends an interrupt for Ctrl-C, and SIGTERM when the console closes, the user logs off or
// the machine shuts down.
var stopSignals = []os.Signal{os.Interrupt, syscall.SIGTERM}

// reloads reports nothing. On Windows the service manager asks for a reload.
func reloads(bool) <-chan struct{} { return nil }
