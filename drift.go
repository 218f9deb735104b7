package ckptsidecar

import (
	"context"
	"time"
)

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

// Rank orders severities: 0 for none, and more for what is graver.
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

// Critical says whether a run should go back to the clean checkpoint.
func (v DriftVerdict) Critical() bool { return v.Verdict == SeverityCritical }

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
	GoodRuns    int      `json:"good_runs,omitempty"`   // the threshold was calibrated on so many good runs of this agent
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
	Checkpoint  Ref      `json:"checkpoint" db:"checkpoint"` // the one in which it was seen, or the recovery checkpoint that was made because of it
	SinceSeq    *int64   `json:"since_seq" db:"since_seq"`   // of a critical one: routine checkpoints after this seq are suspect
	UntilSeq    *int64   `json:"until_seq" db:"until_seq"`   // and up to this one; null while it is open
	Closed      Ref      `json:"closed" db:"closed"`         // a Closing; null while it is open
	ClosedAt    Time     `json:"closed_at" db:"closed_at"`
	DismissedAt Time     `json:"dismissed_at" db:"dismissed_at"` // also of one that was closed before: its suspects are clean again
	DismissedBy Ref      `json:"dismissed_by" db:"dismissed_by"`
}

// Closing is what closed a finding: from then on it is history.
type Closing string

// What closes findings. What an operator dismissed was no drift, so that its
// suspects are clean again; where the run went back they stay what they are.
const (
	ClosedDismissed Closing = "dismissed"
	ClosedResumed   Closing = "resumed"    // a resume went back to a clean checkpoint, or began with none
	ClosedRestored  Closing = "restored"   // a clean checkpoint was restored
	ClosedBegun     Closing = "begun_anew" // the run was begun anew
)

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
	Sig        string // 32 hex digits: the call (tool and canonical arguments); UnknownCall where the arguments are not known
	Res        string // 32 hex digits: the normalised result, or error where that is all there is; "" where neither is known
	Cause      string // 16 hex digits: what it complained of, the same for other calls with the same trouble; "" where it did not complain
	Shape      string // 16 hex digits: the command word or the names of the arguments; calls of one shape do the same kind of work
	Effect     string // 16 hex digits: what the call sets to what, where it sets a file or a working tree; "" for others
	Turn       string // the model's, as it was told
	Failed     bool
	Negative   bool      // the answer was no: it is no error
	Unparsable bool      // the result begins like JSON and does not parse
	Began      time.Time // of a step that was told when it began; else At
	At         time.Time
	AfterSeq   int64   // the run's newest checkpoint when it ended
	Broken     []Found // of the user's own rules; not stored
	Measures
}

// UnknownCall is the Sig of a step whose arguments were not told, or were
// replaced or cut on the way: nobody knows which call it is the same as.
const UnknownCall = "-"

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
	// Talk is the size of the longest conversation in it, 0 where none is
	// recognized: a list of messages that have a role or a type.
	Talk int64
	// Compacted says that the agent declared that it made the state smaller.
	Compacted bool
	// Counters are the numbers in it by JSON pointer, as far as they may be
	// counters; bounded in number and depth.
	Counters map[string]float64
	Broken   []Found // what is wrong with it by itself: its schema, rules of the user's own; not stored
}

// So much of a run's past is enough to go on counting.
const (
	MaxPastSteps  = 4096
	MaxPastStates = 20
	MaxBaseline   = 20 // steps of one tool
)

// RunPast is what is stored of a run, from which a watch is built anew.
type RunPast struct {
	Steps        []StepPrint          // the newest MaxPastSteps that have ended, oldest first
	TotalSteps   int64                // all there ever were
	States       []StatePrint         // the newest MaxPastStates, oldest first
	Baseline     []StepPrint          // the first MaxBaseline stored steps of each tool of the agent, of whatever run, oldest first; may be empty
	Open         []Finding            // neither dismissed nor of another beginning of the run
	Dismissed    map[string]time.Time // by rule: when a finding of it was last dismissed
	Goal         string               // the first that was declared
	StartedAt    time.Time
	LastRoutine  time.Time
	LastRefresh  time.Time // the last recovery checkpoint or resume
	InputTokens  int64
	OutputTokens int64
	CostUSD      float64
	Progress     *float64
	ProgressAt   time.Time
	Calibration  Calibration // of the agent and workflow; a Factor of 0 changes nothing
}

// DriftWatch makes what the store needs to watch runs. internal/drift has the
// real one; the store takes it as a value. It is safe for many goroutines.
type DriftWatch interface {
	// Step makes the print of a step that has ended, and tries the user's own
	// rules that do not ask for a state. It is costly, bounded, and pure. AfterSeq
	// is the caller's to set. A step that failed should have its name and its
	// arguments: by them two calls that complain of the same are known. The error
	// is that of ctx, where it ended first.
	Step(ctx context.Context, p *Policy, r RuleRun, s *Step) (StepPrint, error)
	// State makes the print of a state, and tries its schema and the user's own
	// rules that ask for a state. previous is the run's state before, nil where
	// it is not at hand. It is costly, bounded, and pure. ID, Seq, At and Kind
	// are the caller's to set. Where the policy refuses states that break the
	// schema, the caller refuses those with a finding of RuleSchema in Broken.
	// The error is that of ctx, where it ended first.
	State(ctx context.Context, p *Policy, r RuleRun, state, previous []byte, contentType string) (StatePrint, error)
	// Check refuses a policy whose schema, rules or detectors cannot be used,
	// with the place.
	Check(p *Policy) error
	// Watch begins to watch a run with what is stored of it.
	Watch(p *Policy, past RunPast) RunWatch
	// Evaluator judges recorded runs.
	Evaluator() DriftEvaluator
	// Score is what the thresholds of the loop rules would have to be multiplied
	// with, so that none of them is exceeded in a run.
	Score(p *Policy, r *RecordedRun) float64
	// Calibrate makes of the scores of good runs what a policy asks for.
	Calibrate(p *Policy, scores []float64) Calibration
	// Rules are the rules that come with the program, in the order in which
	// people read them, as a policy makes them.
	Rules(p *Policy) []DriftRule
}

// DriftRule is a rule that comes with the program.
type DriftRule struct {
	Rule     string `json:"rule"`
	Family   string `json:"family"` // loops, operation, state, staleness, agreement, corruption
	About    string `json:"about"`  // when it fires, in one sentence
	Unit     string `json:"unit"`   // what its thresholds count; "" where it has none
	Detector        // what holds for the policy: tier and thresholds, with nothing left to a default
}

// RuleSchema is the rule of a state that breaks its schema.
const RuleSchema = "schema"

// RuleRun is what rules of the user's own see beside the step or the state.
type RuleRun struct {
	Agent, Run, Status, Goal string
	Attempt, Steps           int64
	Progress                 *float64
	Measures                 map[string]float64 // named numbers of the watch, as its Measures answers them
	Map                      JSONPlaces         // where in the state values stand, to find its members quickly; nil if that is not known
	Last                     *Step              // for rules over a state: the newest step that has ended, nil where there is none or it is not at hand
}

// JSONPlaces knows where in a JSON text values stand. internal/jsontext makes it, and
// nothing else looks inside.
type JSONPlaces interface {
	Size() int // bytes of memory
}

// RunWatch watches one run. It is used by one goroutine at a time (the
// writer's), changes at every call, and is thrown away and built anew where a
// transaction was rolled back.
type RunWatch interface {
	// Step counts a step that has ended, and answers what is Broken in it too,
	// as far as the cooldown lets that through.
	Step(StepPrint) []Found
	// State does the same with a state that was saved.
	State(StatePrint) []Found
	// Beat is a sign of life, or only the time going by; progress is nil where
	// none was declared.
	Beat(now time.Time, progress *float64) []Found
	// Goal is a goal that was declared; updated says whether a goal_update
	// event allows another than the first.
	Goal(now time.Time, goal string, updated bool) []Found
	// Forget takes back what a dismissed finding of a rule had counted.
	Forget(rule string)
	// Back is the newest checkpoint before what may yet become critical evidence
	// began, as SinceSeq would name it: the lowest of all rules, from the second
	// sign of each on. The store keeps the newest clean one up to there from
	// retention, so that a critical finding has one to go back to. ok is false
	// while nothing is in the making.
	Back() (seq int64, ok bool)
	// Measures are named numbers for rules of the user's own. It is asked only
	// where the policy has such rules.
	Measures() map[string]float64
}
