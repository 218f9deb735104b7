//go:build !linux

package metertest

import "time"

var began = time.Now()

// threadTime returns the elapsed time: this system does not report the time of a thread.
func threadTime() time.Duration { return time.Since(began) }
