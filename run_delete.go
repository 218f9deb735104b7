package ckptsidecar

// DeletedRun lists what was removed together with a run.
type DeletedRun struct {
	Agent       string `json:"agent"`
	Owner       string `json:"owner"`
	Run         string `json:"run"`
	Checkpoints int64  `json:"checkpoints"`
	Rows        int64  `json:"rows"` // steps, operations, events, findings, prompts and pieces of states
}

// ClearedRun lists the checkpoints of a run that were removed, and counts those that
// stayed.
type ClearedRun struct {
	Agent   string `json:"agent"`
	Owner   string `json:"owner"`
	Run     string `json:"run"`
	Removed int64  `json:"removed"`
	Kept    int64  `json:"kept"` // pinned, or needed by an operation, a prompt or a fork
}
