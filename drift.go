package ckptsidecar

import "time"

// Severity says how much a finding matters: info is for reading later, warn is
// advice, critical changes what resume gives.
type Severity string

// The severities of a finding, in order. SeverityNone is the verdict of a run
// without an open finding.
const (
	SeverityNone     Severity = "none"
	SeverityInfo     Severity = "info"
	SeverityWarn     Severity = "warn"
	SeverityCritical Severity = "critical"
)

// Evidence is what a finding rests on, in words and numbers. Fields that say
// nothing about a rule are left out.
type Evidence struct {
	Threshold   string   `json:"threshold,omitempty"`   // what had to be reached: "5 in 20"
	Observed    string   `json:"observed,omitempty"`    // what was seen: "5 in 17"
	Window      int      `json:"window,omitempty"`      // of so many steps or checkpoints
	Tool        string   `json:"tool,omitempty"`        // the tool that it is about
	Steps       []string `json:"steps,omitempty"`       // the keys of the steps, oldest first, at most MaxEvidence of them
	Checkpoints []string `json:"checkpoints,omitempty"` // the ids of the checkpoints, likewise
	Pointer     string   `json:"pointer,omitempty"`     // RFC 6901, into the state
	Others      []string `json:"others,omitempty"`      // the agents that do not agree
}

// MaxEvidence is how many steps or checkpoints an evidence names at most: the
// first ones and the last one.
const MaxEvidence = 32

// Found is what a detector saw. The store makes a Finding of it.
type Found struct {
	Rule     string
	Severity Severity
	Message  string // one sentence for a person, with the numbers
	Advice   string // one sentence for the model: what to do now
	Evidence Evidence
	// SinceSeq is the run's newest checkpoint before the evidence began: where
	// the finding is critical, later routine ones are suspect.
	SinceSeq int64
}

// Finding is what a drift detector, an agent or the search for secrets saw in
// a run.
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
	Checkpoint  Ref      `json:"checkpoint" db:"checkpoint"`     // the one in which it was seen, or the recovery checkpoint that was made because of it
	SinceSeq    *int64   `json:"since_seq" db:"since_seq"`       // of a critical one: routine checkpoints after this seq are suspect
	DismissedAt Time     `json:"dismissed_at" db:"dismissed_at"` // null while it is open
	DismissedBy Ref      `json:"dismissed_by" db:"dismissed_by"`
}

// DriftVerdict comes back with every save, step and heartbeat, and to whoever
// asks: what is open in the run, and where to go back to.
type DriftVerdict struct {
	Verdict  Severity  `json:"verdict"`  // the highest severity of what is open; none
	Advice   Ref       `json:"advice"`   // of the most severe, for the model; null for none
	Findings []Finding `json:"findings"` // those that this request has made; all open ones where it was asked for
	Clean    Ref       `json:"clean"`    // while critical: the checkpoint to go back to, null where there is none
	Recovery Ref       `json:"recovery"` // while critical: the recovery checkpoint that was made first
}

// StepPrint is what the detectors keep of a step. Making it costs what hashing
// the step costs; it is made outside the writer and stored with the step, so
// that a restarted daemon goes on counting.
type StepPrint struct {
	Key        string
	Tool       string
	Sig        string // 32 hex digits: the call (tool and canonical arguments)
	Res        string // 32 hex digits: the normalised result; "" where there is none
	Failed     bool
	Unparsable bool // the result begins like JSON and does not parse
	At         time.Time
	AfterSeq   int64 // the run's newest checkpoint when it ended
	Measures
}

// StatePrint is what the detectors keep of a state: no value of it but the
// numbers that may be counters.
type StatePrint struct {
	ID   string
	Seq  int64
	At   time.Time
	Kind Kind
	Size int64
	// Keys are the types of the top-level values of a JSON object, nil for
	// another state: "null", "boolean", "number", "string", "array", "object".
	Keys map[string]string
	// Counters are the numbers in it by JSON pointer, as far as they may be
	// counters; bounded in number and depth.
	Counters map[string]float64
	Broken   []Found // what is wrong with it by itself: its schema, rules of the user's own
}

// RunPast is what is stored of a run, from which a watch is built anew.
type RunPast struct {
	Steps        []StepPrint  // the newest ones, oldest first; enough to go on counting
	TotalSteps   int64        // all there ever were
	States       []StatePrint // the newest ones, oldest first
	Open         []Finding    // neither dismissed nor of another beginning of the run
	Goal         string       // the first that was declared
	StartedAt    time.Time
	LastRoutine  time.Time
	LastRefresh  time.Time // the last recovery checkpoint or resume
	InputTokens  int64
	OutputTokens int64
	CostUSD      float64
	Progress     *float64
	ProgressAt   time.Time
}

// DriftWatch makes what the store needs to watch runs. internal/drift has the
// real one; the store takes it as a value. It is safe for many goroutines.
type DriftWatch interface {
	// Step makes the print of a step that has ended. It is costly and pure.
	Step(agent string, p *Policy, s *Step) StepPrint
	// State makes the print of a state, previous being the run's state before,
	// nil where it is not at hand. It is costly, bounded, and pure.
	State(agent string, p *Policy, r RuleRun, state, previous []byte, contentType string) StatePrint
	// Check refuses a policy whose schema, rules or detectors cannot be used,
	// with the place.
	Check(p *Policy) error
	// Watch begins to watch a run with what is stored of it.
	Watch(p *Policy, past RunPast) RunWatch
}

// RuleRun is what rules of the user's own see of the run.
type RuleRun struct {
	Agent, Run, Status, Goal string
	Attempt, Steps           int64
	Progress                 *float64
	Measures                 map[string]float64 // named numbers of the watch, as its Measures answers them
}

// RunWatch watches one run. It is used by one goroutine at a time (the
// writer's), changes at every call, and is thrown away and built anew where a
// transaction was rolled back.
type RunWatch interface {
	Step(StepPrint) []Found
	State(StatePrint) []Found
	// Beat is a sign of life, or only the time going by; progress is nil where
	// none was declared.
	Beat(now time.Time, progress *float64) []Found
	// Goal is a goal that was declared; updated says whether a goal_update
	// event allows another than the first.
	Goal(now time.Time, goal string, updated bool) []Found
	// Rules are the user's own rules over a step.
	// Forget takes back what a dismissed finding of a rule had counted.
	Forget(rule string)
	Measures() map[string]float64
}
