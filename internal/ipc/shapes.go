package ipc

import ckpt "github.com/ckptsidecar/ckptsidecar"

// Health is the answer of the probes if everything is in order.
type Health struct {
	Status   string   `json:"status"`             // ok
	State    string   `json:"state,omitempty"`    // of a readiness probe: ready, or degraded if saves are acknowledged but something is wrong
	Problems []string `json:"problems,omitempty"` // what is wrong
}

// StepEnd is the end of a step on the wire. It has the members of a StepRequest that the
// start of the step did not have.
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

// ContentsBody asks which contents are missing.
type ContentsBody struct {
	SHA256 []string `json:"sha256"`
}
