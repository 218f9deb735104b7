// Package host has what the benchmark needs from the operating system: processes that can be
// stopped and continued, and that end with it; a disk that is flushed between measurements. It
// needs Linux; on other systems everything returns ErrLinuxOnly.
//
// This package may import the standard library and golang.org/x/sys.
package host

import "errors"

// ErrLinuxOnly says that this machine cannot run the benchmark.
var ErrLinuxOnly = errors.New("the comparison stops and continues whole process trees and reads /proc, so it runs on Linux only")
