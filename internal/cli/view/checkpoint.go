package view

import (
	"encoding/json"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// CheckpointShape is a checkpoint with its state, as the API writes it.
type CheckpointShape struct {
	*ckpt.Checkpoint
	State       json.RawMessage `json:"state,omitempty"`
	StateBase64 []byte          `json:"state_base64,omitempty"`
}

// CheckpointShapeOf returns a checkpoint as the API writes it.
func CheckpointShapeOf(c *ckpt.Checkpoint) *CheckpointShape {
	shape := &CheckpointShape{Checkpoint: c}
	if ckpt.IsJSON(c.ContentType) {
		shape.State = c.State
	} else {
		shape.StateBase64 = c.State
	}
	return shape
}
