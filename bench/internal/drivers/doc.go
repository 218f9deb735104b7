// Package drivers holds the client of each system that has one in Go, written as its users would
// write it. Each driver runs in a separate process, so that none uses processor time of another:
// see Run.
//
// This package may import internal/load, internal/host and internal/ours; each file imports the
// library of its own system.
package drivers
