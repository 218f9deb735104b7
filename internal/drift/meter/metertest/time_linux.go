package metertest

import (
	"syscall"
	"time"
	"unsafe"
)

// threadTime returns the processor time that this thread has used.
func threadTime() time.Duration {
	const thisThread = 3 // CLOCK_THREAD_CPUTIME_ID of clock_gettime(2); getrusage(2) can count in ticks
	var t syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, thisThread, uintptr(unsafe.Pointer(&t)), 0); errno != 0 {
		panic(errno)
	}
	return time.Duration(t.Nano())
}
