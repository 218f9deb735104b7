package ckptsidecar

// The rules of the store itself. The detectors have the other rules.
const (
	RuleSecret     = "secret"      // a state holds what looks like a secret
	RuleCorruption = "corruption"  // a stored state does not read back intact
	RuleSharedKeys = "shared_keys" // agents do not agree

	RuleFilesVanished = "files_vanished" // most files of a tree are not in the next one
)

// EventGoalUpdate is the type of the event that allows a run to change its first goal. Its payload
// may name the new goal: {"goal": "…"}.
const EventGoalUpdate = "goal_update"

// LabelCompaction is the label of a checkpoint whose state was made smaller on purpose, for example
// by a summary. The value of the label does not matter.
const LabelCompaction = "compaction"

// MaxFindings is how many findings of a run may be open. Later findings are not recorded, except a
// critical one while no other critical one is open.
const MaxFindings = 1000

// FindingRequest is a finding that the agent reports itself.
type FindingRequest struct {
	Run      string   `json:"run,omitempty"` // "" means MainRun
	Epoch    *int64   `json:"epoch,omitempty"`
	Rule     string   `json:"rule"`
	Severity Severity `json:"severity"`
	Message  string   `json:"message"`
	Advice   Ref      `json:"advice,omitempty"`
	Evidence JSON     `json:"evidence,omitempty"` // an object
	// SinceSeq is of a critical one the newest checkpoint that is still good;
	// without it the run's newest. 0 says that none is.
	SinceSeq       *int64 `json:"since_seq,omitempty"`
	IdempotencyKey string `json:"-"`
}

// Check refuses a request that is wrong in itself.
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

// Check refuses a request that is wrong in itself.
func (r *DismissRequest) Check() error {
	if err := CheckID(r.ID); err != nil {
		return err
	}
	return CheckReason(r.Reason)
}

// DismissedFinding is the answer to a DismissRequest.
type DismissedFinding struct {
	Finding
	Cleaned []string      `json:"cleaned"` // the checkpoints that are suspect no more
	Drift   *DriftVerdict `json:"drift"`
}

// DriftFilter chooses the contents of a drift report.
type DriftFilter struct {
	Agent  string
	Run    string // "" means MainRun
	All    bool   // also findings that are closed
	Line   bool   // with the timeline
	Before string // a cursor
	Limit  int
}

// TimelineLength is how many steps and checkpoints a timeline has at most.
const TimelineLength = 200

// TimelineEntry is a step or a checkpoint in the order in which they came.
type TimelineEntry struct {
	What    string `json:"what"` // step or checkpoint
	At      Time   `json:"at"`   // when it ended, or was saved
	Key     string `json:"key"`  // of the step; the id of the checkpoint
	Name    string `json:"name"` // of the step; the kind of the checkpoint
	Status  string `json:"status"`
	Seq     int64  `json:"seq"`     // of the checkpoint; of the newest one before the step
	Suspect bool   `json:"suspect"` // a checkpoint that is suspect
}

// DriftReport is everything known about a run's drift.
type DriftReport struct {
	Agent string `json:"agent"`
	Owner string `json:"owner"`
	Run   string `json:"run"`
	DriftVerdict
	Next     Ref             `json:"next"`               // the cursor of the next page of findings, newest first
	Timeline []TimelineEntry `json:"timeline,omitempty"` // the newest ones, oldest first, where it was asked for
	// Calibration is what the good runs of this agent and workflow make of the
	// thresholds, where its policy asks for a share of false alarms.
	Calibration *Calibration `json:"calibration,omitempty"`
	// Unseen are the rules that cannot see anything in this run, because it is
	// observed and what they look at was not sent.
	Unseen []string `json:"unseen,omitempty"`
}

// DriftStatus is the status of the drift detectors.
type DriftStatus struct {
	Watched  int64          `json:"watched"`  // runs whose steps and states are being watched, as far as memory holds them
	Findings []FindingCount `json:"findings"` // open ones, by rule and severity
	// Calibrations are the thresholds that were made of good runs, by agent and
	// workflow, where policies ask for a share of false alarms.
	Calibrations []Calibration `json:"calibrations"`
}

// FindingCount is how many findings of a rule are open.
type FindingCount struct {
	Rule     string   `json:"rule" db:"rule"`
	Severity Severity `json:"severity" db:"severity"`
	Count    int64    `json:"count" db:"count"`
}
