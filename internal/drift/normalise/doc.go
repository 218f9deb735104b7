// Package normalise takes out of a text what differs between the same answer at
// two times: timestamps, durations, ids of processes, addresses.
//
// This package may import the standard library only.
package normalise
