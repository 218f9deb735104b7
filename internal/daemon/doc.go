// Package daemon is the service: its configuration, the wiring of the packages
// below it, and the order in which they start and stop.
//
// It starts configuration, identity check, database, endpoint, READY, and
// stops listener, requests in flight, workers, readers, writer. How it ended
// is an *EndError, which carries the exit code for the service manager.
//
// The commands may not import the store, so what they need of it without a
// daemon, Verify and Backup, is here. What a host does for its fleet is in
// internal/fleet/host.
//
// This package may import the packages of level 0 and 1.
package daemon
