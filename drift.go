package ckptsidecar

import (
	"encoding/json"
	"slices"
)

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
	Pointers    []string `json:"pointers,omitempty"`    // likewise, if there are several, at most MaxEvidence of them
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
	About       About    `json:"about" db:"about"`           // which checkpoints it puts in doubt
	Posted      bool     `json:"posted" db:"posted"`         // an agent reported it: it never recovers by itself
	SinceSeq    *int64   `json:"since_seq" db:"since_seq"`   // the newest checkpoint before the evidence; null if it is about the run
	UntilSeq    *int64   `json:"until_seq" db:"until_seq"`   // the newest checkpoint when it was closed; null while the finding is open
	Earlier     JSON     `json:"earlier" db:"earlier"`       // an EarlierTime for each time that it was open before, oldest first
	Closed      Ref      `json:"closed" db:"closed"`         // a Closing; null while the finding is open
	ClosedAt    Time     `json:"closed_at" db:"closed_at"`
	DismissedAt Time     `json:"dismissed_at" db:"dismissed_at"` // also if it was closed before: its suspects are clean again
	DismissedBy Ref      `json:"dismissed_by" db:"dismissed_by"`
}

// About is what a finding is about. That decides which checkpoints it puts in doubt.
type About string

// What findings are about. While a finding about the work or the state is critical, the checkpoints
// since its evidence are suspect. While a finding about the state is a warning, they are not, but a
// way back leads before them. A finding about the run is about time, use or progress, and says
// nothing about checkpoints.
const (
	AboutRun   About = "run"
	AboutWork  About = "work"
	AboutState About = "state"
)

// Marks reports whether the finding makes checkpoints suspect.
func (f *Finding) Marks() bool { return f.SinceSeq != nil && f.Severity == SeverityCritical }

// Doubts reports whether a way back must lead before the evidence of the finding.
func (f *Finding) Doubts() bool {
	return f.Marks() || f.SinceSeq != nil && f.Severity == SeverityWarn && f.About == AboutState
}

// Covers reports whether a checkpoint was saved after the evidence of the finding began, and before
// the finding was closed.
func (f *Finding) Covers(seq int64) bool {
	if f.SinceSeq != nil && seq > *f.SinceSeq && (f.UntilSeq == nil || seq <= *f.UntilSeq) {
		return true
	}
	var earlier []EarlierTime
	_ = json.Unmarshal(f.Earlier, &earlier) // none if it cannot be read
	return slices.ContainsFunc(earlier, func(t EarlierTime) bool { return seq > t.SinceSeq && seq <= t.UntilSeq })
}

// EarlierTime is a time that a finding was open before its rule fired again.
type EarlierTime struct {
	SinceSeq   int64 `json:"since_seq"`
	UntilSeq   int64 `json:"until_seq"`
	Checkpoint Ref   `json:"checkpoint"`
}

// Closing is the reason why a finding was closed. A closed finding is history.
type Closing string

// The reasons why findings are closed. A dismissed finding was not drift, so its suspect
// checkpoints become clean again. If the run went back, they stay suspect.
const (
	ClosedDismissed Closing = "dismissed"
	ClosedRecovered Closing = "recovered"  // its rule no longer held
	ClosedResumed   Closing = "resumed"    // a resume went back to a clean checkpoint, or began without one
	ClosedRestored  Closing = "restored"   // a clean checkpoint was restored
	ClosedBegun     Closing = "begun_anew" // the run was started from the beginning
)

// DriftVerdict is in the answer to every save, step and heartbeat, and to requests for it. It
// holds the open findings of the run, and the checkpoint to go back to.
type DriftVerdict struct {
	Verdict  Severity  `json:"verdict"`           // the highest severity of the open findings, or none
	Advice   Ref       `json:"advice"`            // the advice of the most severe finding, for the model; null for none
	Findings []Finding `json:"findings"`          // the findings that this request has made; all open ones if it asked for them
	Secrets  []Finding `json:"secrets,omitempty"` // likewise what looks like a secret, which is no drift
	Clean    Ref       `json:"clean"`             // while checkpoints are in doubt: the one to go back to, null if there is none
	Recovery Ref       `json:"recovery"`          // while critical: the recovery checkpoint that was made first
}

// RuleBlindSteps is the rule that finds steps in which loops cannot be seen.
const RuleBlindSteps = "blind_steps"

// RuleSchema is the rule that finds states that violate their schema.
const RuleSchema = "schema"
