package ipc

import (
	"encoding/json"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Diff is what lies between the states of two checkpoints.
type Diff struct {
	Patch   json.RawMessage `json:"patch"` // RFC 6902, from the first to the second
	Summary DiffSummary     `json:"summary"`
}

// DiffSummary is the same for people: one line for each member of the top
// level, in the order of the states. Where a state is no object, its one line
// has the path "".
type DiffSummary struct {
	Added   []DiffField `json:"added"`
	Removed []DiffField `json:"removed"`
	Changed []DiffField `json:"changed"`
}

// DiffField is one member that differs. From and To are its values; one that
// is long is cut, and is then a string with the beginning of its JSON text.
type DiffField struct {
	Path     string          `json:"path"` // a JSON pointer
	From     json.RawMessage `json:"from,omitempty"`
	To       json.RawMessage `json:"to,omitempty"`
	FromSize int64           `json:"from_size"` // bytes of JSON, 0 where there is none
	ToSize   int64           `json:"to_size"`
	Cut      bool            `json:"cut,omitempty"`
}

// Version is what /v1/version answers.
type Version struct {
	Name    string `json:"name"` // ckptsidecar
	Version string `json:"version"`
	API     int    `json:"api"`    // the number in the paths
	Schema  int    `json:"schema"` // of the database
}

// Health is what the probes answer when all is well.
type Health struct {
	Status   string   `json:"status"`             // ok
	State    string   `json:"state,omitempty"`    // of a readiness probe: ready, or degraded where saves are acknowledged and something is wrong
	Problems []string `json:"problems,omitempty"` // what that is
}

// stepEnd is the end of a step on the wire: what of a StepRequest can still be
// said when the step began with its name and its arguments.
type StepEnd struct {
	Epoch        *int64          `json:"epoch,omitempty"`
	Status       ckpt.StepStatus `json:"status,omitempty"`
	Result       ckpt.JSON       `json:"result,omitempty"`
	Error        ckpt.Ref        `json:"error,omitempty"`
	Turn         ckpt.Ref        `json:"turn,omitempty"`
	Outcome      ckpt.Ref        `json:"outcome,omitempty"`
	DurationMS   *int64          `json:"duration_ms,omitempty"`
	InputTokens  *int64          `json:"input_tokens,omitempty"`
	OutputTokens *int64          `json:"output_tokens,omitempty"`
	CostUSD      *float64        `json:"cost_usd,omitempty"`
	Progress     *float64        `json:"progress,omitempty"`
}
