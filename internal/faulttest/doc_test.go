// Package faulttest checks the promises against the real program: a daemon in
// its own process is killed, stopped, locked out and lied to, while clients
// talk to it over its socket and the sqlite3 command reads the database at the
// same time. Every test ends in the same oracle, the invariants of
// History.Check and Daemon.Audit.
//
// TestFaults is the matrix of faults as a program, TestSoak runs for hours, and
// docs/RELIABILITY.md says what was found: make faults-short, make faults, make
// soak.
//
// It contains only tests, so nothing can import it. It may import every package
// of this module; it only runs the program.
package faulttest
