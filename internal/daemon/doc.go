// Package daemon is the service: its configuration, the wiring of the packages
// below it, and the order in which they start and stop.
//
// It starts configuration, identity check, database, endpoint, READY in this order. It
// stops listener, requests in progress, workers, readers, writer in this order. The
// result is an *EndError with the exit code for the service manager.
//
// The commands may not import the store. Therefore this package also has what they need
// of the store without a daemon: Verify and Backup. internal/fleet/host has what a host
// does for its fleet.
//
// This package may import the packages of level 0 and 1.
package daemon
