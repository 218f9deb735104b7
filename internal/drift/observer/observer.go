// Package observer has the words in which the store and the detectors of drift
// speak: what is kept of steps and states, and who watches a run. internal/drift
// does the watching.
//
// It may import the root package.
package observer

import (
	"context"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// MaxCalibrated is how many of an agent's newest good runs of a workflow
// thresholds are calibrated on.
const MaxCalibrated = 500

// Found is what a detector saw. The store makes a Finding of it.
type Found struct {
	Rule     string
	Severity ckpt.Severity
	Message  string // one sentence for a person, with the numbers
	Advice   string // one sentence for the model: what to do now
	Evidence ckpt.Evidence
	// SinceSeq is the run's newest checkpoint before the evidence began: where
	// the finding is critical, later routine ones are suspect.
	SinceSeq int64
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
	ckpt.Measures
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
	Kind ckpt.Kind
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
	Open         []ckpt.Finding       // neither dismissed nor of another beginning of the run
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
	Calibration  ckpt.Calibration // of the agent and workflow; a Factor of 0 changes nothing
}

// Watcher makes what the store needs to watch runs. internal/drift has the
// real one; the store takes it as a value. It is safe for many goroutines.
type Watcher interface {
	// Step makes the print of a step that has ended, and tries the user's own
	// rules that do not ask for a state. It is costly, bounded, and pure. AfterSeq
	// is the caller's to set. A step that failed should have its name and its
	// arguments: by them two calls that complain of the same are known. The error
	// is that of ctx, where it ended first.
	Step(ctx context.Context, p *ckpt.Policy, r RuleRun, s *ckpt.Step) (StepPrint, error)
	// State makes the print of a state, and tries its schema and the user's own
	// rules that ask for a state. previous is the run's state before, nil where
	// it is not at hand. It is costly, bounded, and pure. ID, Seq, At and Kind
	// are the caller's to set. Where the policy refuses states that break the
	// schema, the caller refuses those with a finding of RuleSchema in Broken.
	// The error is that of ctx, where it ended first.
	State(ctx context.Context, p *ckpt.Policy, r RuleRun, state, previous []byte, contentType string) (StatePrint, error)
	// Check refuses a policy whose schema, rules or detectors cannot be used,
	// with the place.
	Check(p *ckpt.Policy) error
	// Watch begins to watch a run with what is stored of it.
	Watch(p *ckpt.Policy, past RunPast) RunWatch
	// Evaluator judges recorded runs.
	Evaluator() Evaluator
	// Score is what the thresholds of the loop rules would have to be multiplied
	// with, so that none of them is exceeded in a run.
	Score(p *ckpt.Policy, r *RecordedRun) float64
	// Calibrate makes of the scores of good runs what a policy asks for.
	Calibrate(p *ckpt.Policy, scores []float64) ckpt.Calibration
	// Rules are the rules that come with the program, in the order in which
	// people read them, as a policy makes them.
	Rules(p *ckpt.Policy) []Rule
}

// Rule is a rule that comes with the program.
type Rule struct {
	Rule          string `json:"rule"`
	Family        string `json:"family"` // loops, operation, state, staleness, agreement, corruption
	About         string `json:"about"`  // when it fires, in one sentence
	Unit          string `json:"unit"`   // what its thresholds count; "" where it has none
	ckpt.Detector        // what holds for the policy: tier and thresholds, with nothing left to a default
}

// RuleRun is what rules of the user's own see beside the step or the state.
type RuleRun struct {
	Agent, Run, Status, Goal string
	Attempt, Steps           int64
	Progress                 *float64
	Measures                 map[string]float64 // named numbers of the watch, as its Measures answers them
	Map                      JSONPlaces         // where in the state values stand, to find its members quickly; nil if that is not known
	Last                     *ckpt.Step         // for rules over a state: the newest step that has ended, or nil
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
	// Spend counts what was used outside of steps, or by a step that is told too
	// late to have a place in their order: measures and budgets know of it, and the
	// rules about order do not.
	Spend(p StepPrint, step bool) []Found
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

// RecordedRun is a run that is over, or as far as it has come, with what the
// detectors keep of its steps and states.
type RecordedRun struct {
	ID        string
	Source    string // its agent, or the set that it is of
	Workflow  string
	Outcome   string // its status, or what a set says of it
	Good      bool   // it ended well: thresholds may be calibrated on it
	Onset     *int   // the number of the step, from 0, at which a fault was injected
	StartedAt time.Time
	Goal      string
	Steps     []StepPrint
	Raw       []ckpt.Step  // the steps as sent, if known: then the user's own rules are tried too
	Begins    []int        // numbers of the steps at which the run was resumed, or went back: from there on it is counted anew
	States    []StatePrint // each comes before the steps whose AfterSeq is its Seq or more
}

// Evaluator judges recorded runs one after the other, in the order in which
// they began.
type Evaluator interface {
	// Judge takes in a run. Where it explains, what it saw is in the result.
	Judge(p *ckpt.Policy, r *RecordedRun, explain bool)
	Result() *ckpt.Evaluation
}
