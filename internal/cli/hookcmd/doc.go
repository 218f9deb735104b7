// Package hookcmd has the command hook: it records what coding agents report to their
// hooks, and adds the hooks to the settings of a coding agent.
//
// This package may import the root package, internal/cli, internal/cli/filescmd,
// internal/cli/term, internal/cli/view, internal/hook, internal/ipc/client and
// internal/osfile.
package hookcmd
