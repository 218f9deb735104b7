// Package fleetcmd has the commands fleet …: an operator's view of the engine that the hosts
// share, and the operator's actions on the runs of lost hosts. `runs --fleet`, `prompts
// --fleet`, `show`, `diff` and `erase --wait` also use it to ask the fleet.
//
// This package may import the root package, internal/cli, internal/cli/term,
// internal/cli/view, internal/daemon, internal/fleet, internal/fleet/host,
// internal/ipc/client, internal/periodic and internal/survey.
package fleetcmd
