package survey

// What has changed. The first line of an answer is ChangedBegin: from then on nothing
// is missed, so whoever draws a page reads it anew there.
const (
	ChangedBegin      = "begin" // the watching has begun
	ChangedAll        = "all"   // more than was kept for a slow reader: look at everything
	ChangedAgent      = "agent"
	ChangedPolicy     = "policy"
	ChangedRun        = "run"
	ChangedCheckpoint = "checkpoint"
	ChangedStep       = "step"
	ChangedOperation  = "operation"
	ChangedEvent      = "event"
	ChangedFinding    = "finding"
	ChangedPrompt     = "prompt"
)

// Change says that something has changed. It carries none of it: whoever wants to know
// asks. Several changes of one kind to a run come as one while nobody has read the
// first. A heartbeat is no change.
//
//	GET /v1/changes?follow=true     one a line, as NDJSON
type Change struct {
	What  string `json:"what"`  // one of the words above
	Owner string `json:"owner"` // whose; "" for begin and all
	Agent string `json:"agent"` // "" where it is about all agents of the owner
	Run   string `json:"run"`   // "" where it is about the agent
	N     int64  `json:"n"`     // 0 for begin, then 1, 2, … on this connection. It counts what this caller was told, nothing else
}
