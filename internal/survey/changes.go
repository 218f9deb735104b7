package survey

// What has changed. The first line of an answer is ChangedBegin: no change after it is
// missed, so a client that shows a page reads the page again then.
const (
	ChangedBegin      = "begin" // the client is watching from now on
	ChangedAll        = "all"   // more than was kept for a slow reader: read everything again
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

// Change says that something has changed, but not how: a client that wants to know
// asks. Several changes of one kind to a run become one while the client has not read
// the first. A heartbeat is not a change.
//
//	GET /v1/changes?follow=true     one a line, as NDJSON
type Change struct {
	What  string `json:"what"`  // one of the constants above
	Owner string `json:"owner"` // the owner of what has changed; "" for begin and all
	Agent string `json:"agent"` // "" if it is about all agents of the owner
	Run   string `json:"run"`   // "" if it is about the agent
	N     int64  `json:"n"`     // 0 for begin, then 1, 2, … on this connection; it counts only what this caller was told
}
