// Package fleetcmd has the commands fleet …: an operator's view of the engine that the hosts
// share, and the operator's actions on the runs of lost hosts. `runs --fleet` also uses it
// to ask the fleet.
//
// This package may import the root package, internal/cli, internal/cli/term,
// internal/cli/view, internal/daemon, internal/fleet, internal/fleet/host,
// internal/ipc/client, internal/survey.
package fleetcmd
