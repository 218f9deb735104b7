//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

var stopSignals = []os.Signal{os.Interrupt, syscall.SIGTERM}

// reloads tells of each SIGHUP. In a terminal that signal keeps its meaning,
// which is that the terminal has gone.
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
