// Package manual has the commands completion and man. Both use the model of the command line, so
// they contain a new command or flag automatically.
//
// This package may import the root package, internal/cli, internal/cli/term and internal/daemon.
package manual
