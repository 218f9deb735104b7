// Package view writes answers of the API, for people and as JSON, if several commands
// need it: resume plans, checkpoints, the status of runs.
//
// This package may import the root package, internal/cli and internal/cli/term.
package view
