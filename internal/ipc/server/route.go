package server

import (
	"slices"
)

var (
	saveParams   = []string{"kind", "run", "epoch", "parent", "fork_from", "step", "label"}
	postParams   = append(slices.Clone(saveParams), "base", "content_type")
	listParams   = []string{"run", "kind", "label", "suspect", "before", "limit"}
	latestParams = []string{"run", "kind", "clean", "state"}
	partParams   = []string{"status", "before", "limit"}
	findParams   = []string{"status", "workflow", "label", "goal", "since", "until", "severity", "sort", "lives", "before", "limit"}
)

const (
	runsPath   = "/v1/agents/{agent}/runs"
	oneRunPath = runsPath + "/{run}"
)

// followRoute is the route of calls that follow events. It has its own name, so that
// their long duration does not distort the latency of the other calls.
var followRoute = route{name: "follow"}

// waitRoute is the same for calls that wait for the answer to a prompt.
var waitRoute = route{name: "wait"}
