// Package drivers holds the client of each system that has one in Go, written
// as its users would write it. Each runs in a process of its own, so that none
// burns the time of another: see Run.
//
// This package may import internal/load, internal/host and internal/ours; each
// file names the library of its own system.
package drivers
