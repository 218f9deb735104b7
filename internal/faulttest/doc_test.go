// Package faulttest holds the promises against the real program: a daemon in a
// process of its own, which is killed, stopped, locked out and lied to, while
// clients talk to it over its socket and the sqlite3 command reads beside it.
// Every test ends in the same oracle, the invariants of History.Check and
// Daemon.Audit.
//
// TestFaults is the matrix of faults as a program, TestSoak goes on for hours, and
// docs/RELIABILITY.md says what was found: make faults-short, make faults, make soak.
//
// It is made of tests only, so nothing can import it. It may import everything
// of ours; the program it only runs.
package faulttest
