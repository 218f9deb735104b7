package ckptsidecar

// The rules of the store itself. All other rules belong to the detectors.
const (
	RuleSecret     = "secret"      // a state contains something that looks like a secret
	RuleCorruption = "corruption"  // a stored state cannot be read back intact
	RuleSharedKeys = "shared_keys" // agents disagree on a shared key

	RuleFilesVanished = "files_vanished" // most files of a tree are not in the next one
)

// EventGoalUpdate is the type of the event that allows a run to change its first goal. Its payload
// can name the new goal: {"goal": "…"}.
const EventGoalUpdate = "goal_update"

// Events of a loop that is a state machine: it enters a state, or tells how often it took each edge.
// Drift detection counts the edges. The payloads are {"state": "…"} and {"edge_revisit_counts":
// {"from->to": 3}}; any event may have edge_revisit_counts.
const (
	EventStateEnter        = "state_enter"
	EventEdgeRevisitCounts = "edge_revisit_counts"
)

// LabelCompaction is the label of a checkpoint whose state was made smaller on purpose, for example
// by a summary. The value of the label does not matter.
const LabelCompaction = "compaction"

// MaxFindings is the maximum number of open findings of a run. Later findings are not recorded,
// except a critical one while no other critical one is open.
const MaxFindings = 1000

// FindingRequest is a finding that the agent itself reports.
type FindingRequest struct {
	Run      string   `json:"run,omitempty"` // "" means MainRun
	Epoch    *int64   `json:"epoch,omitempty"`
	Rule     string   `json:"rule"`
	Severity Severity `json:"severity"`
	Message  string   `json:"message"`
	Advice   Ref      `json:"advice,omitempty"`
	Evidence JSON     `json:"evidence,omitempty"` // an object
	// SinceSeq belongs to a critical finding: the newest checkpoint that is still good. If it is
	// nil, that is the run's newest checkpoint. 0 means that no checkpoint is good.
	SinceSeq       *int64 `json:"since_seq,omitempty"`
	IdempotencyKey string `json:"-"`
}

// Check refuses an invalid request.
func (r *FindingRequest) Check() error {
	if err := checkRuleName(r.Rule); err != nil {
		return err
	}
	if err := checkSeverity(r.Severity); err != nil {
		return err
	}
	if r.Message == "" {
		return Errorf(CodeInvalid, "message is missing: describe in one sentence what is wrong")
	}
	if err := checkMessage("message", r.Message); err != nil {
		return err
	}
	if err := checkMessage("advice", string(r.Advice)); err != nil {
		return err
	}
	if r.SinceSeq != nil && *r.SinceSeq < 0 {
		return Errorf(CodeInvalid, "since_seq is %d: give the seq of the newest checkpoint that is still good, or 0 if there is none", *r.SinceSeq)
	}
	return nil
}

// PostedFinding is the answer to a FindingRequest.
type PostedFinding struct {
	Finding
	Drift *DriftVerdict `json:"drift"`
}

// DismissRequest says that a finding was wrong, or has been dealt with.
type DismissRequest struct {
	ID             string `json:"-"`
	Reason         string `json:"reason,omitempty"`
	IdempotencyKey string `json:"-"`
}

// Check refuses an invalid request.
func (r *DismissRequest) Check() error {
	if err := CheckID(r.ID); err != nil {
		return err
	}
	return CheckReason(r.Reason)
}

// DismissedFinding is the answer to a DismissRequest.
type DismissedFinding struct {
	Finding
	Cleaned []string      `json:"cleaned"` // the checkpoints that are no longer suspect
	Drift   *DriftVerdict `json:"drift"`
}

// DriftFilter chooses the contents of a drift report.
type DriftFilter struct {
	Agent  string
	Run    string // "" means MainRun
	All    bool   // also closed findings
	Line   bool   // with the timeline
	Before string // a cursor
	Limit  int
}

// TimelineLength is the maximum number of steps and checkpoints in a timeline.
const TimelineLength = 200

// TimelineEntry is a step or a checkpoint. A timeline has them in the order in which they were
// made.
type TimelineEntry struct {
	What    string `json:"what"` // step or checkpoint
	At      Time   `json:"at"`   // when it ended, or was saved
	Key     string `json:"key"`  // the key of the step, or the id of the checkpoint
	Name    string `json:"name"` // the name of the step, or the kind of the checkpoint
	Status  string `json:"status"`
	Seq     int64  `json:"seq"`     // of the checkpoint; for a step, of the newest checkpoint before it
	Suspect bool   `json:"suspect"` // whether the checkpoint is suspect
}

// DriftReport is everything known about a run's drift.
type DriftReport struct {
	Agent string `json:"agent"`
	Owner string `json:"owner"`
	Run   string `json:"run"`
	DriftVerdict
	Next     Ref             `json:"next"`               // the cursor of the next page of findings, newest first
	Timeline []TimelineEntry `json:"timeline,omitempty"` // the newest entries, oldest first, if the filter asks for them
	// Calibration describes how the good runs of this agent and workflow change the thresholds. It
	// is set if the agent's policy asks for a share of false alarms.
	Calibration *Calibration `json:"calibration,omitempty"`
	// Unseen lists the rules that cannot see anything in this run, because the run is observed and
	// the data that they look at was not sent.
	Unseen []string `json:"unseen,omitempty"`
}

// DriftStatus is the status of the drift detectors.
type DriftStatus struct {
	Watched  int64          `json:"watched"`  // the runs in memory whose steps and states are being watched
	Findings []FindingCount `json:"findings"` // the open ones, by rule and severity
	// Calibrations are the thresholds that come from good runs, by agent and workflow, if policies
	// ask for a share of false alarms.
	Calibrations []Calibration `json:"calibrations"`
}

// FindingCount is the number of open findings of a rule.
type FindingCount struct {
	Rule     string   `json:"rule" db:"rule"`
	Severity Severity `json:"severity" db:"severity"`
	Count    int64    `json:"count" db:"count"`
}
