package ckptsidecar

// Severity is how much a finding matters: info is for reading later, warn is advice, critical
// changes what resume returns.
type Severity string

// The severities of a finding, in order. SeverityNone is the verdict of a run without an open
// finding.
const (
	SeverityNone     Severity = "none"
	SeverityInfo     Severity = "info"
	SeverityWarn     Severity = "warn"
	SeverityCritical Severity = "critical"
)

// Rank returns the order of a severity: 0 for none, and a higher number for a more severe one.
func (s Severity) Rank() int {
	switch s {
	case SeverityInfo:
		return 1
	case SeverityWarn:
		return 2
	case SeverityCritical:
		return 3
	}
	return 0
}

// Critical reports whether a run should go back to the clean checkpoint.
func (v DriftVerdict) Critical() bool { return v.Verdict == SeverityCritical }

// Evidence is what a finding is based on, in words and numbers. Fields that do not apply to a rule
// are left out.
type Evidence struct {
	Threshold   string   `json:"threshold,omitempty"`   // the value that had to be reached: "5 in 20"
	Observed    string   `json:"observed,omitempty"`    // the value that was seen: "5 in 17"
	Window      int      `json:"window,omitempty"`      // the number of steps or checkpoints that were looked at
	Tool        string   `json:"tool,omitempty"`        // the tool that the finding is about
	Steps       []string `json:"steps,omitempty"`       // the keys of the steps, oldest first, at most MaxEvidence of them
	Checkpoints []string `json:"checkpoints,omitempty"` // the ids of the checkpoints, in the same way
	Pointer     string   `json:"pointer,omitempty"`     // RFC 6901, into the state
	Others      []string `json:"others,omitempty"`      // the agents that disagree
	GoodRuns    int      `json:"good_runs,omitempty"`   // the threshold was calibrated on this many good runs of the agent
}

// MaxEvidence is the maximum number of steps or checkpoints that an Evidence names: the first ones
// and the last one.
const MaxEvidence = 32

// Finding is what a drift detector, an agent or the search for secrets found in a run.
type Finding struct {
	ID          string   `json:"id" db:"id"`
	Agent       string   `json:"agent" db:"agent"`
	Owner       string   `json:"owner" db:"owner"`
	Run         string   `json:"run" db:"run"`
	At          Time     `json:"at" db:"at"`
	Rule        string   `json:"rule" db:"rule"`
	Severity    Severity `json:"severity" db:"severity"`
	Message     string   `json:"message" db:"message"`
	Advice      Ref      `json:"advice" db:"advice"`
	Evidence    JSON     `json:"evidence" db:"evidence"`
	Checkpoint  Ref      `json:"checkpoint" db:"checkpoint"` // the one in which it was seen, or the recovery checkpoint made because of it
	SinceSeq    *int64   `json:"since_seq" db:"since_seq"`   // if critical: routine checkpoints after this seq are suspect
	UntilSeq    *int64   `json:"until_seq" db:"until_seq"`   // and up to this seq; null while the finding is open
	Closed      Ref      `json:"closed" db:"closed"`         // a Closing; null while the finding is open
	ClosedAt    Time     `json:"closed_at" db:"closed_at"`
	DismissedAt Time     `json:"dismissed_at" db:"dismissed_at"` // also if it was closed before: its suspects are clean again
	DismissedBy Ref      `json:"dismissed_by" db:"dismissed_by"`
}

// Closing is the reason why a finding was closed. A closed finding is history.
type Closing string

// The reasons why findings are closed. A dismissed finding was not drift, so its suspect
// checkpoints become clean again. If the run went back, they stay suspect.
const (
	ClosedDismissed Closing = "dismissed"
	ClosedResumed   Closing = "resumed"    // a resume went back to a clean checkpoint, or began without one
	ClosedRestored  Closing = "restored"   // a clean checkpoint was restored
	ClosedBegun     Closing = "begun_anew" // the run was started from the beginning
)

// DriftVerdict is in the answer to every save, step and heartbeat, and to requests for it. It
// holds the open findings of the run, and the checkpoint to go back to.
type DriftVerdict struct {
	Verdict  Severity  `json:"verdict"`  // the highest severity of the open findings, or none
	Advice   Ref       `json:"advice"`   // the advice of the most severe finding, for the model; null for none
	Findings []Finding `json:"findings"` // the findings that this request has made; all open ones if it asked for them
	Clean    Ref       `json:"clean"`    // while critical: the checkpoint to go back to, null if there is none
	Recovery Ref       `json:"recovery"` // while critical: the recovery checkpoint that was made first
}

// RuleSchema is the rule that finds states that violate their schema.
const RuleSchema = "schema"
