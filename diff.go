package ckptsidecar

import "encoding/json"

// Diff is the difference between the states of two checkpoints.
type Diff struct {
	Patch   json.RawMessage `json:"patch"` // RFC 6902, from the first to the second
	Summary DiffSummary     `json:"summary"`
}

// DiffSummary is the difference for people: one line for each top-level member, in the order of the
// states. If a state is not an object, there is one line with the path "".
type DiffSummary struct {
	Added   []DiffField `json:"added"`
	Removed []DiffField `json:"removed"`
	Changed []DiffField `json:"changed"`
}

// DiffField is one member that differs. From and To are its values. A long value is cut; it is then
// a string with the start of its JSON text.
type DiffField struct {
	Path     string          `json:"path"` // a JSON pointer
	From     json.RawMessage `json:"from,omitempty"`
	To       json.RawMessage `json:"to,omitempty"`
	FromSize int64           `json:"from_size"` // bytes of JSON, 0 if there is none
	ToSize   int64           `json:"to_size"`
	Cut      bool            `json:"cut,omitempty"`
}
