// Package supervise is the command exec: it claims a run for a command, beats for it,
// and starts it again after a crash or a freeze.
//
// This package may import the root package, internal/cli, internal/cli/term,
// internal/cli/view, internal/daemon, internal/fleet/lease, internal/ipc/client and internal/osfile.
package supervise
