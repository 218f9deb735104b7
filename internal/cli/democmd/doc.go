// Package democmd has the command demo: it kills a working agent and lets it continue, or
// fills a daemon with the invented runs of a busy host.
//
// This package may import the root package, internal/cli, internal/cli/program,
// internal/cli/term, internal/cli/view, internal/ipc/client and internal/periodic.
package democmd
