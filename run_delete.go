package ckptsidecar

// DeletedRun lists what was removed together with a run.
type DeletedRun struct {
	Agent       string `json:"agent"`
	Owner       string `json:"owner"`
	Run         string `json:"run"`
	Checkpoints int64  `json:"checkpoints"`
	Rows        int64  `json:"rows"` // steps, operations, events, findings, prompts and pieces of states
	// Uncertain lists the operations that went although nobody knows whether they took effect: only a forced deletion removes
	// such operations.
	Uncertain []RemovedOperation `json:"uncertain_operations"`
}

// RemovedOperation names an attempt of an operation that nobody is asked about any more.
type RemovedOperation struct {
	Key     string          `json:"key"`
	Name    string          `json:"name"`
	Attempt int64           `json:"attempt"`
	Status  OperationStatus `json:"status"` // open or uncertain
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
