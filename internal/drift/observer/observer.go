// Package observer has the types that the store and the drift detectors share: what is
// kept about steps and states, and the interface for watching a run. internal/drift
// implements it.
//
// It may import the root package.
package observer

import (
	"context"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// MaxCalibrated is how many of an agent's newest good runs of a workflow are used to
// calibrate thresholds.
const MaxCalibrated = 500

// Found is what a detector saw. The store turns it into a Finding.
type Found struct {
	Rule     string
	Severity ckpt.Severity
	Message  string // one sentence for a person, with the numbers
	Advice   string // one sentence for the model: what to do now
	Evidence ckpt.Evidence
	About    ckpt.About // which checkpoints it puts in doubt
	// SinceSeq is the run's newest checkpoint before the evidence began. It counts unless
	// the finding is about the run.
	SinceSeq int64
}

// StepPrint is what the detectors keep about a step. Making it costs as much as hashing
// the step. It is made outside the writer and stored with the step, so that a restarted
// daemon continues to count.
type StepPrint struct {
	Key        string
	Tool       string
	Sig        string // 32 hex digits: the call (tool and canonical arguments); UnknownCall if the arguments are unknown
	Res        string // 32 hex digits: the normalized result, or the error if there is nothing else; "" if neither is known
	Cause      string // 16 hex digits: the complaint, the same for other calls with the same problem; "" if it did not complain
	Shape      string // 16 hex digits: the command word or the names of the arguments; calls of one shape do the same kind of work
	Effect     string // 16 hex digits: what the call sets to what, if it sets a file or a working tree; "" for others
	Turn       string // the turn of the model, as it was reported
	Failed     bool
	Negative   bool      // the answer was no: this is no error
	Unparsable bool      // the result begins like JSON and cannot be parsed
	Began      time.Time // when the step began, if that was reported; else At
	At         time.Time
	AfterSeq   int64    // the run's newest checkpoint when the step ended
	Broken     []Found  // findings of the user's own rules; not stored
	Clear      []string // the user's own rules that were tried and did not hold; not stored
	ckpt.Measures
}

// UnknownCall is the Sig of a step whose arguments were not reported, or were replaced or
// cut on the way: it is unknown which other call it equals.
const UnknownCall = "-"

// StatePrint is what the detectors keep about a state. It contains no value of the state
// except the numbers that can be counters.
type StatePrint struct {
	ID   string
	Seq  int64
	At   time.Time
	Kind ckpt.Kind
	Size int64
	// Keys are the types of the top-level values of a JSON object, nil for another state:
	// "null", "boolean", "number", "string", "array", "object".
	Keys map[string]string
	// Talk is the size of the longest conversation in the state, 0 if none is recognized.
	// A conversation is a list of messages that have a role or a type.
	Talk int64
	// Compacted says that the agent declared that it had made the state smaller.
	Compacted bool
	// Counters are the numbers in the state that can be counters, by JSON pointer. Their
	// number and depth are limited.
	Counters map[string]float64
	Broken   []Found  // what is wrong with the state itself: its schema, rules of the user; not stored
	Clear    []string // the schema and the rules of the user, if they were tried and did not hold; not stored
}

// This much of a run's past is enough to continue counting.
const (
	MaxPastSteps  = 4096
	MaxPastStates = 20
	MaxBaseline   = 20 // steps of one tool
)

// RunPast is the stored data of a run from which a watch is rebuilt.
type RunPast struct {
	Steps        []StepPrint          // the newest MaxPastSteps that have ended, oldest first
	TotalSteps   int64                // the number of all steps
	States       []StatePrint         // the newest MaxPastStates, oldest first
	Baseline     []StepPrint          // the first MaxBaseline stored steps of each tool of the agent, of any run, oldest first; can be empty
	Entered      []string             // the newest states that a loop entered since the segment began, oldest first
	Open         []ckpt.Finding       // neither dismissed nor from an earlier beginning of the run
	Dismissed    map[string]time.Time // by rule: when a finding of it was last dismissed
	DroppedGoal  ckpt.JSON            // the evidence of the finding of goal_changed that was dismissed last
	Goal         string               // the goal that was declared first
	StartedAt    time.Time
	LastRoutine  time.Time
	LastRefresh  time.Time // the time of the last recovery checkpoint or resume
	InputTokens  int64
	OutputTokens int64
	CostUSD      float64
	Progress     *float64
	ProgressAt   time.Time
	Calibration  ckpt.Calibration // of the agent and workflow; a Factor of 0 changes nothing
}

// Watcher is what the store needs to watch runs. internal/drift has the real one; the
// store gets it as a value. It is safe for concurrent use.
type Watcher interface {
	// Step makes the print of a step that has ended, and tries the user's own rules that
	// do not need a state. It is costly, has limits, and is pure. The caller sets
	// AfterSeq. A step that failed should have its name and its arguments: they are
	// needed to see that two calls have the same complaint. The error is that of ctx, if
	// ctx ended first.
	Step(ctx context.Context, p *ckpt.Policy, r RuleRun, s *ckpt.Step) (StepPrint, error)
	// State makes the print of a state, and tries its schema and the user's own rules
	// that need a state. previous is the run's previous state, nil if it is not at hand.
	// State is costly, has limits, and is pure. The caller sets ID, Seq, At and Kind. If
	// the policy refuses states that violate the schema, the caller refuses a state with
	// a finding of RuleSchema in Broken. The error is that of ctx, if ctx ended first.
	State(ctx context.Context, p *ckpt.Policy, r RuleRun, state, previous []byte, contentType string) (StatePrint, error)
	// Check refuses a policy whose schema, rules or detectors cannot be used. The error
	// names the place.
	Check(p *ckpt.Policy) error
	// Watch begins to watch a run with its stored data.
	Watch(p *ckpt.Policy, past RunPast) RunWatch
	// Evaluator returns an evaluator of recorded runs.
	Evaluator() Evaluator
	// Score returns the factor by which the thresholds of the loop rules must be
	// multiplied so that the run exceeds none of them.
	Score(p *ckpt.Policy, r *RecordedRun) float64
	// Calibrate returns the calibration that a policy asks for, from the scores of good
	// runs.
	Calibrate(p *ckpt.Policy, scores []float64) ckpt.Calibration
	// Rules returns the rules that come with the program, in the order that people
	// expect, with the settings of a policy.
	Rules(p *ckpt.Policy) []Rule
}

// Rule is a rule that comes with the program.
type Rule struct {
	Rule          string `json:"rule"`
	Family        string `json:"family"`    // loops, operation, state, staleness, agreement, corruption
	About         string `json:"about"`     // when it fires, in one sentence
	OverWhen      string `json:"over_when"` // when a finding of it is over, in one sentence
	Unit          string `json:"unit"`      // what its thresholds count; "" if it has none
	ckpt.Detector        // the effective setting in the policy: tier and thresholds, with all defaults filled in
}

// RuleRun is what the user's own rules see in addition to the step or the state.
type RuleRun struct {
	Agent, Run, Status, Goal string
	Attempt, Steps           int64
	Progress                 *float64
	Measures                 map[string]float64 // named numbers of the watch, from its Measures
	Map                      JSONPlaces         // the positions of values in the state, to find its members quickly; nil if unknown
	Last                     *ckpt.Step         // for rules over a state: the newest step that has ended, or nil
}

// JSONPlaces knows the positions of values in a JSON text. internal/jsontext makes it,
// and only internal/jsontext looks inside.
type JSONPlaces interface {
	Size() int // bytes of memory
}

// RunWatch watches one run. One goroutine at a time uses it (the writer's). It changes at
// every call. If a transaction was rolled back, it is thrown away and rebuilt.
type RunWatch interface {
	// Step counts a step that has ended. It returns findings, which include those in
	// Broken unless the cooldown prevents that.
	Step(StepPrint) []Found
	// Spend counts use outside of steps, or by a step that is reported too late to have a
	// place in the order of steps. Measures and budgets count it, but the rules about
	// order do not.
	Spend(p StepPrint, step bool) []Found
	// State does the same for a saved state.
	State(StatePrint) []Found
	// Beat takes in a heartbeat, or only the passing of time. progress is nil if none was
	// declared.
	Beat(now time.Time, progress *float64) []Found
	// Enter takes in that a loop that is a state machine enters a state, "" for none, and
	// how often it took each edge, nil if it does not say.
	Enter(now time.Time, state string, counts map[string]int64) []Found
	// Goal checks a declared goal. If updated is true, a goal_update event allows another
	// goal than the first.
	Goal(now time.Time, goal string, updated bool) []Found
	// Over reports whether the rule of an open finding no longer holds, after what the
	// watch saw last. The store then closes the finding as recovered. The findings of
	// agents and of the store itself are not asked about.
	Over(f *ckpt.Finding) bool
	// Forget removes what a dismissed finding of a rule had counted.
	Forget(rule string)
	// Back returns the newest checkpoint from before the start of evidence that can still
	// become critical, as SinceSeq would name it. It is the lowest one of all rules, from
	// the second sign of each rule on. The store protects the newest clean checkpoint up
	// to there from retention, so that a critical finding has a checkpoint to go back to.
	// ok is false if there is no such evidence.
	Back() (seq int64, ok bool)
	// Measures returns named numbers for the user's own rules. It is called only if the
	// policy has such rules.
	Measures() map[string]float64
}

// RecordedRun is a run that is over, or the recorded part of a run, with what the
// detectors keep about its steps and states.
type RecordedRun struct {
	ID        string
	Source    string // its agent, or the set that it belongs to
	Workflow  string
	Outcome   string // its status, or the outcome that the set gives
	Good      bool   // it ended well: thresholds can be calibrated on it
	Onset     *int   // the number of the step, from 0, at which a fault was injected
	StartedAt time.Time
	Goal      string
	Steps     []StepPrint
	Raw       []ckpt.Step  // the steps as sent, if known: then the user's own rules are tried too
	Begins    []int        // numbers of the steps at which the run was resumed, or went back: counting starts again there
	States    []StatePrint // each comes before the steps whose AfterSeq is its Seq or more
}

// Evaluator judges recorded runs one after another, in the order in which they began.
type Evaluator interface {
	// Judge judges a run. If explain is true, the result contains what the detectors saw.
	Judge(p *ckpt.Policy, r *RecordedRun, explain bool)
	Result() *ckpt.Evaluation
}
