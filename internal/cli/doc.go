// Package cli holds what all commands share: their process and the flags of the
// whole program, the connection to the daemon, and how errors become exit codes.
//
// This package may import the root package, internal/cli/program,
// internal/cli/term, internal/daemon and internal/ipc/client.
package cli
