// Package view writes what the API answers, for people and as JSON, where several
// commands need it: resume plans, checkpoints, the status of
// runs.
//
// This package may import the root package, internal/cli and internal/cli/term.
package view
