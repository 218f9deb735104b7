// Package hook turns what coding agents tell their hooks into runs, steps, operations
// and checkpoints. It also tells the model what it should know: that it drifts, or that
// an earlier session was interrupted.
//
// Each call is a process of its own that lives for milliseconds, so nothing is
// remembered here. What one call must know about another is in the daemon, or follows
// from its input. Nothing here may stop an agent: every failure is an error that the
// command ignores.
//
// Only product.go, transcript.go, answer.go and written.go know what the products send, write and
// expect. install.go (pure) edits the settings by which the products call us.
//
// # What this package may import
//
// The standard library, golang.org/x/sys, github.com/google/uuid and mvdan.cc/sh; from this project the root package,
// internal/ipc/client and internal/jsontext.
package hook
