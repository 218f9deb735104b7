// Package hook makes runs, steps, operations and checkpoints out of what coding
// agents tell their hooks, and says back to the model what it should know: that
// it drifts, or that an earlier session broke off.
//
// Each call is a process of its own that lives for milliseconds, so nothing is
// remembered here: what one call has to know of another is in the daemon, or
// follows from what it is told. Nothing here may stop an agent: whatever goes
// wrong is an error that the command swallows.
//
// What the products send and expect is in product.go and answer.go, and nowhere
// else. The settings by which they call us are edited in install.go (pure).
//
// # What this room may import
//
// The standard library and golang.org/x/sys; the root package, internal/ipc/client
// and internal/jsontext of ours.
package hook
