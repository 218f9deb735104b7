// Package measure measures a daemon on the disk of a user. It has `ckptsidecar bench
// save`, and what that shares with the measurements of the module bench: states that
// compress as real text does, clients that repeat a task, figures, and drawings of bars.
//
// Each measurement starts its own daemons in its own folder. It never opens the database
// of the user.
//
// This package may import the root, internal/cli, internal/cli/program,
// internal/cli/term, internal/daemon, internal/ipc/client, internal/osfile and
// internal/periodic.
package measure
