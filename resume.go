package ckptsidecar

import "encoding/json"

// ResumeVerdict is the verdict of a resume plan.
type ResumeVerdict string

// The verdicts of a resume plan.
const (
	VerdictFresh  ResumeVerdict = "fresh"  // nothing to resume
	VerdictResume ResumeVerdict = "resume" // the newest checkpoint is clean, and nothing is open
	VerdictRepair ResumeVerdict = "repair" // continue, with the changes that the plan lists
	VerdictAsk    ResumeVerdict = "ask"    // an operator must decide first
	// VerdictOffline is of plans that a client makes while the daemon is away: nobody can say what was done.
	VerdictOffline ResumeVerdict = "offline"
	VerdictUnsafe  ResumeVerdict = "unsafe" // the run still has an owner, or no checkpoint can be read back intact
)

// ResumeRequest claims a run. With DryRun, it only asks for the plan.
type ResumeRequest struct {
	Agent            string    `json:"-"`
	Run              string    `json:"-"`
	PID              int       `json:"pid,omitempty"` // of the new owner; 0: none is known, and only timeouts watch the run
	HeartbeatTimeout *Duration `json:"heartbeat_timeout,omitempty"`
	ProgressTimeout  *Duration `json:"progress_timeout,omitempty"`
	LeaveUncertain   bool      `json:"leave_uncertain,omitempty"` // go on, or begin an ended run anew, although an operation is uncertain; needs a reason
	Reason           string    `json:"reason,omitempty"`          // for the audit log
	DryRun           bool      `json:"dry_run,omitempty"`
	Force            bool      `json:"force,omitempty"`   // take the run over from a live owner
	Command          *Command  `json:"command,omitempty"` // how the agent is started; it stays with the run
	Waits            int       `json:"waits,omitempty"`   // the process that goes on with the run when a person has answered
	// Fleet limits the request to this host if it is false: a run of another host of the fleet stays there.
	Fleet *bool `json:"fleet,omitempty"`
	// Standby asks for a run only if it is on this host already, or can be claimed from another host now. Otherwise
	// the answer is conflict, with the time after which to ask again.
	Standby        bool       `json:"standby,omitempty"`
	Claimed        *PlanFleet `json:"-"` // the daemon has just claimed the run from another host
	IdempotencyKey string     `json:"-"`
}

// Check refuses an invalid request.
func (r *ResumeRequest) Check() error {
	if err := CheckAgentName(r.Agent); err != nil {
		return err
	}
	if err := optional(r.Run, CheckRunName); err != nil {
		return err
	}
	if r.PID < 0 {
		return Errorf(CodeInvalid, "pid is %d: give the new owner's process id, or leave it out", r.PID)
	}
	if r.Waits < 0 {
		return Errorf(CodeInvalid, "waits is %d: give the id of the process that waits for an answer, or leave it out", r.Waits)
	}
	if err := r.Command.Check(); err != nil {
		return err
	}
	if err := checkTimeout("heartbeat_timeout", r.HeartbeatTimeout); err != nil {
		return err
	}
	if err := checkTimeout("progress_timeout", r.ProgressTimeout); err != nil {
		return err
	}
	return checkLeaving(r.LeaveUncertain, r.Reason)
}

// Plan describes how to continue a run: what to load, what is done, what is uncertain, and whether
// it is safe.
type Plan struct {
	Verdict             ResumeVerdict     `json:"verdict"`
	Reasons             []string          `json:"reasons"`
	Agent               string            `json:"agent"`
	Run                 string            `json:"run"`
	Epoch               int64             `json:"epoch"` // the new owner's fencing token; the present one if not claimed
	Attempt             int64             `json:"attempt"`
	Claimed             bool              `json:"claimed"`
	Checkpoint          *Checkpoint       `json:"checkpoint"` // with its state; null if there is none to load
	CompletedSteps      []CompletedStep   `json:"completed_steps"`
	InterruptedSteps    []InterruptedStep `json:"interrupted_steps"`
	UncertainOperations []Operation       `json:"uncertain_operations"`
	Skipped             []Skipped         `json:"skipped"`
	EventsAfter         int64             `json:"events_after"`
	Program             *ProgramRest      `json:"program"`
	ContinuationPrompt  Ref               `json:"continuation_prompt"`
	AccumulatedMS       int64             `json:"accumulated_ms"`
	ExternalSession     Ref               `json:"external_session"`
	MemoryDiff          JSON              `json:"memory_diff"` // RFC 6902, from the checkpoint's state to nothing: what a fresh start loses
	Prompt              *Prompt           `json:"prompt"`
	Fleet               *PlanFleet        `json:"fleet,omitempty"` // set if the run was just claimed from another host
	Command             *Command          `json:"command"`         // how the agent is started; null: nobody said
	Questions           []Prompt          `json:"questions"`       // of the run, oldest first: open, or answered after the checkpoint
}

// PlanFleet is the part of a plan about a run that was claimed from another host of the fleet.
type PlanFleet struct {
	FromHost       string   `json:"from_host"`
	Term           int64    `json:"term"`
	AcknowledgedTo int64    `json:"acknowledged_to"` // the newest checkpoint that the engine had
	LostAtMost     Duration `json:"lost_at_most"`    // how long the former host may have done work that the engine lacks
	StrandPossible bool     `json:"strand_possible"` // the former host may have more of the run, and has not reported
}

// CompletedStep is a step that does not have to run again.
type CompletedStep struct {
	Key    string `json:"key"`
	Name   string `json:"name"`
	Result JSON   `json:"result"`
}

// InterruptedStep is a step whose outcome is unknown, with a synthetic result that completes the
// transcript.
type InterruptedStep struct {
	Key             string          `json:"key"`
	Name            string          `json:"name"`
	Args            JSON            `json:"args"`
	StartedAt       Time            `json:"started_at"`
	SyntheticResult SyntheticResult `json:"synthetic_result"`
}

// SyntheticResult is the result for a tool call whose real result was lost, in the forms that model APIs accept.
type SyntheticResult struct {
	Text      string `json:"text"`
	Anthropic JSON   `json:"anthropic"` // a tool_result block with is_error
	OpenAI    JSON   `json:"openai"`    // a message of role tool
}

// NewSyntheticResult gives a text as the result of the step with this key.
func NewSyntheticResult(key, text string) SyntheticResult {
	form := func(v any) JSON {
		b, _ := json.Marshal(v) // plain fields, which cannot fail
		return b
	}
	return SyntheticResult{
		Text: text,
		Anthropic: form(struct {
			Type      string `json:"type"`
			ToolUseID string `json:"tool_use_id"`
			IsError   bool   `json:"is_error"`
			Content   string `json:"content"`
		}{"tool_result", key, true, text}),
		OpenAI: form(struct {
			Role       string `json:"role"`
			ToolCallID string `json:"tool_call_id"`
			Content    string `json:"content"`
		}{"tool", key, text}),
	}
}

// Skipped is a checkpoint that a plan does not use, and the reason.
type Skipped struct {
	ID     string `json:"id"`
	Seq    int64  `json:"seq"`
	Reason string `json:"reason"`
}

// ProgramRest is the part of a checkpoint's program that has not run.
type ProgramRest struct {
	Executed  int64  `json:"executed"`
	Remaining string `json:"remaining"`
}
