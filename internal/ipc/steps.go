package ipc

import (

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// stepEnd is the end of a step on the wire: what of a StepRequest can still be
// said when the step began with its name and its arguments.
type stepEnd struct {
	Epoch        *int64          `json:"epoch,omitempty"`
	Status       ckpt.StepStatus `json:"status,omitempty"`
	Result       ckpt.JSON       `json:"result,omitempty"`
	Error        ckpt.Ref        `json:"error,omitempty"`
	DurationMS   *int64          `json:"duration_ms,omitempty"`
	InputTokens  *int64          `json:"input_tokens,omitempty"`
	OutputTokens *int64          `json:"output_tokens,omitempty"`
	CostUSD      *float64        `json:"cost_usd,omitempty"`
	Progress     *float64        `json:"progress,omitempty"`
}
