// Package fleetcmd has the commands fleet …: an operator's view of the engine that many
// hosts share, and what he does with the runs of lost hosts. `runs --fleet`, `prompts --fleet`,
// `show`, `diff` and `erase --wait` ask the fleet by it too.
//
// This package may import the root package, internal/cli, internal/cli/term,
// internal/cli/view, internal/daemon, internal/fleet, internal/fleet/host,
// internal/ipc/client, internal/periodic and internal/survey.
package fleetcmd
