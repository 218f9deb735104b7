// Package supervise has the command exec: it claims a run for a command, sends heartbeats for it,
// and restarts it after a crash or a freeze.
//
// This package may import the root package, internal/cli, internal/cli/term,
// internal/cli/view, internal/daemon, internal/fleet/lease, internal/ipc/client and internal/osfile.
package supervise
