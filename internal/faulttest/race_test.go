//go:build race && unix

package faulttest

// lookingForRaces also builds the daemon with the race detector. If the daemon
// finds a race, it writes it to its log, and the test fails.
const lookingForRaces = true
