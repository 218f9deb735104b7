// Package host implements what one host does for its fleet.
//
// A Member runs beside the daemon's store. It ships to the fleet's engine what the host
// commits, holds the host's lease, and answers the API: how safe a write is, what may begin,
// and which runs other hosts have. The functions Check, Migrate, Forget, Verify and
// the others serve commands, which need no daemon.
//
// The shipper only reads the database. Every other question to the engine has a connection
// of its own, so that none waits for a batch.
//
// This package may import the root package, internal/db with its audit and journal,
// internal/fleet and the packages below it, internal/ipc/server, internal/osfile,
// internal/periodic, internal/retention and internal/survey.
package host
