// Package driftcmd has the command drift: it shows findings, the rules of an agent, and
// what the rules find in recorded runs.
//
// This package may import the root package, internal/cli, internal/cli/term,
// internal/cli/view, internal/drift, internal/drift/observer,
// internal/ipc/client,
// internal/jsontext, internal/survey and internal/wellformed.
package driftcmd
