// Package normalise removes from a text what differs between the same answer at two
// times: timestamps, durations, process ids, addresses.
//
// This package may import the standard library only.
package normalise
