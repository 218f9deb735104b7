//go:build race && unix

package faulttest

// lookingForRaces builds the daemon with the race detector too. One that has
// found a race says so in its log, which fails the test.
const lookingForRaces = true
