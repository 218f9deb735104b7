// Package host is what the benchmark needs of the operating system: processes
// that stop and go on, and end with it; a disk that is flushed between turns.
// It needs Linux; elsewhere everything answers ErrLinuxOnly.
//
// This package may import the standard library and golang.org/x/sys.
package host

import "errors"

// ErrLinuxOnly says that this machine cannot run the benchmark.
var ErrLinuxOnly = errors.New("the comparison stops and continues whole process trees and reads /proc, so it runs on Linux only")
