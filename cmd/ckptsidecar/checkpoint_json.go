package main

import (
	"encoding/json"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

// checkpointShape is a checkpoint with its state, as the API writes it.
type checkpointShape struct {
	*ckpt.Checkpoint
	State       json.RawMessage `json:"state,omitempty"`
	StateBase64 []byte          `json:"state_base64,omitempty"`
}

func (a *app) writeCheckpoint(c *ckpt.Checkpoint) error {
	return term.WriteJSON(a.Data(), shapeOfCheckpoint(c))
}

func shapeOfCheckpoint(c *ckpt.Checkpoint) *checkpointShape {
	shape := &checkpointShape{Checkpoint: c}
	if ckpt.IsJSON(c.ContentType) {
		shape.State = c.State
	} else {
		shape.StateBase64 = c.State
	}
	return shape
}
