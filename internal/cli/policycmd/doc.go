// Package policycmd has the command policy: it shows the settings of an agent, and
// changes them.
//
// This package may import the root package, internal/cli, internal/cli/term,
// internal/daemon, internal/ipc/client, internal/jsontext and internal/wellformed.
package policycmd
