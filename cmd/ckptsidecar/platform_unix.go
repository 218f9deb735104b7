//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

var stopSignals = []os.Signal{os.Interrupt, syscall.SIGTERM}

// reloads reports each SIGHUP. In a terminal the signal keeps its usual meaning: the terminal has
// been closed.
func reloads(interactive bool) <-chan struct{} {
	if interactive {
		return nil
	}
	signals, asked := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGHUP)
	go func() {
		for range signals {
			asked <- struct{}{}
		}
	}()
	return asked
}
