// Package metertest helps tests to show that all work is paid for.
//
// This package may import the standard library only. Only tests may import it.
package metertest
