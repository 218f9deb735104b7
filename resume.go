package ckptsidecar

// ResumeVerdict says how to go on.
type ResumeVerdict string

// The verdicts of a resume plan.
const (
	VerdictFresh  ResumeVerdict = "fresh"  // nothing to resume
	VerdictResume ResumeVerdict = "resume" // the newest checkpoint is clean, nothing is open
	VerdictRepair ResumeVerdict = "repair" // go on, with the changes that the plan lists
	VerdictAsk    ResumeVerdict = "ask"    // an operator must decide first
	VerdictUnsafe ResumeVerdict = "unsafe" // somebody still owns the run, or nothing reads back intact
)

// ResumeRequest claims a run, or with DryRun only looks.
type ResumeRequest struct {
	Agent            string    `json:"-"`
	Run              string    `json:"-"`
	PID              int       `json:"pid,omitempty"` // of the new owner; 0: none is known, and only timeouts watch the run
	HeartbeatTimeout *Duration `json:"heartbeat_timeout,omitempty"`
	ProgressTimeout  *Duration `json:"progress_timeout,omitempty"`
	Reason           string    `json:"reason,omitempty"`
	DryRun           bool      `json:"dry_run,omitempty"`
	Force            bool      `json:"force,omitempty"` // take the run over from a live owner
	IdempotencyKey   string    `json:"-"`
}

// Check refuses a request that is wrong in itself.
func (r *ResumeRequest) Check() error {
	if err := (RunRef{Agent: r.Agent, Run: r.Run}).Check(); err != nil {
		return err
	}
	if r.PID < 0 {
		return Errorf(CodeInvalid, "pid is %d: say the new owner's process id, or nothing", r.PID)
	}
	if err := checkTimeout("heartbeat_timeout", r.HeartbeatTimeout); err != nil {
		return err
	}
	if err := checkTimeout("progress_timeout", r.ProgressTimeout); err != nil {
		return err
	}
	return CheckReason(r.Reason)
}

// Plan says how to go on with a run: what to load, what is done, what is
// uncertain, and whether it is safe.
type Plan struct {
	Verdict             ResumeVerdict     `json:"verdict"`
	Reasons             []string          `json:"reasons"`
	Agent               string            `json:"agent"`
	Run                 string            `json:"run"`
	Epoch               int64             `json:"epoch"` // the new owner's fencing token; the present one where nothing was claimed
	Attempt             int64             `json:"attempt"`
	Claimed             bool              `json:"claimed"`
	Checkpoint          *Checkpoint       `json:"checkpoint"` // with its state; null where there is none to load
	CompletedSteps      []CompletedStep   `json:"completed_steps"`
	InterruptedSteps    []InterruptedStep `json:"interrupted_steps"`
	UncertainOperations []Operation       `json:"uncertain_operations"`
	Skipped             []Skipped         `json:"skipped"`
	EventsAfter         int64             `json:"events_after"`
	Program             *ProgramRest      `json:"program"`
	ContinuationPrompt  Ref               `json:"continuation_prompt"`
	AccumulatedMS       int64             `json:"accumulated_ms"`
	ExternalSession     Ref               `json:"external_session"`
	MemoryDiff          JSON              `json:"memory_diff"` // RFC 6902, from the checkpoint's state to nothing: what a new beginning loses
	Prompt              *Prompt           `json:"prompt"`
}

// CompletedStep is a step that need not be run again.
type CompletedStep struct {
	Key    string `json:"key"`
	Name   string `json:"name"`
	Result JSON   `json:"result"`
}

// InterruptedStep is a step that nobody knows the end of, with a result that
// makes a transcript whole again.
type InterruptedStep struct {
	Key             string          `json:"key"`
	Name            string          `json:"name"`
	Args            JSON            `json:"args"`
	StartedAt       Time            `json:"started_at"`
	SyntheticResult SyntheticResult `json:"synthetic_result"`
}

// SyntheticResult answers a tool call whose real result was lost, in the forms
// that model APIs accept.
type SyntheticResult struct {
	Text      string `json:"text"`
	Anthropic JSON   `json:"anthropic"` // a tool_result block with is_error
	OpenAI    JSON   `json:"openai"`    // a message of role tool
}

// Skipped is a checkpoint that was passed over, and why.
type Skipped struct {
	ID     string `json:"id"`
	Seq    int64  `json:"seq"`
	Reason string `json:"reason"`
}

// ProgramRest is what of a checkpoint's program has not run.
type ProgramRest struct {
	Executed  int64  `json:"executed"`
	Remaining string `json:"remaining"`
}

// PromptChoice is an operator's answer.
type PromptChoice string

// The answers to a prompt.
const (
	ChoiceResume       PromptChoice = "resume"
	ChoiceReinitialize PromptChoice = "reinitialize"
	ChoiceAbandon      PromptChoice = "abandon"
)

// Prompt is a question to the operator.
type Prompt struct {
	ID         string `json:"id" db:"id"`
	Agent      string `json:"agent" db:"agent"`
	Owner      string `json:"owner" db:"owner"`
	Run        string `json:"run" db:"run"`
	At         Time   `json:"at" db:"at"`
	Question   string `json:"question" db:"question"`
	Reason     string `json:"reason" db:"reason"`
	Checkpoint Ref    `json:"checkpoint" db:"checkpoint"`
	MemoryDiff JSON   `json:"memory_diff" db:"memory_diff"` // what reinitialize would lose
	Choice     Ref    `json:"choice" db:"choice"`           // a PromptChoice, null while unanswered
	AnsweredAt Time   `json:"answered_at" db:"answered_at"`
	AnsweredBy Ref    `json:"answered_by" db:"answered_by"`
}

// PromptAnswer is an operator's decision.
type PromptAnswer struct {
	ID             string       `json:"-"`
	Choice         PromptChoice `json:"choice"`
	Reason         string       `json:"reason,omitempty"`
	IdempotencyKey string       `json:"-"`
}

// Check refuses an answer that is wrong in itself.
func (a *PromptAnswer) Check() error {
	if err := CheckID(a.ID); err != nil {
		return err
	}
	switch a.Choice {
	case ChoiceResume, ChoiceReinitialize, ChoiceAbandon:
		return CheckReason(a.Reason)
	}
	return Errorf(CodeInvalid, "choice %q is unknown: it is resume, reinitialize or abandon", cut(string(a.Choice)))
}

// PromptFilter chooses prompts, newest first.
type PromptFilter struct {
	Open   bool // only those without an answer
	Before string
	Limit  int
}

// PromptPage is one page of prompts.
type PromptPage struct {
	Prompts []Prompt `json:"prompts"`
	Next    Ref      `json:"next"`
}
