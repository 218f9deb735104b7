package metertest

import (
	"syscall"
	"time"
)

// threadTime is the processor time that this thread has taken.
func threadTime() time.Duration {
	const thisThread = 1 // RUSAGE_THREAD of getrusage(2)
	var r syscall.Rusage
	if err := syscall.Getrusage(thisThread, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
