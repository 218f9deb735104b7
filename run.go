package ckptsidecar

import (
	"strings"
	"time"
)

// Run is one execution of an agent's loop, workflow or thread.
type Run struct {
	Agent              string    `json:"agent" db:"agent"`
	Owner              string    `json:"owner" db:"owner"`
	Run                string    `json:"run" db:"run"`   // main, or main~2 for the second life before the present one
	Life               int64     `json:"life" db:"life"` // 1, 2, …; it never changes
	Workflow           Ref       `json:"workflow" db:"workflow"`
	Status             RunStatus `json:"status" db:"status"`
	Epoch              int64     `json:"epoch" db:"epoch"`          // the fencing token in the writes of the owner
	Attempt            int64     `json:"attempt" db:"attempt"`      // the number of times that it was started or resumed
	PID                int       `json:"pid" db:"pid"`              // of the owner; 0 if none is known
	PIDHere            int       `json:"pid_here,omitempty" db:"-"` // the number of the owner in the caller's process namespace, if that is another one
	ParentRun          Ref       `json:"parent_run" db:"parent_run"`
	ForkedFrom         Ref       `json:"forked_from" db:"forked_from"` // the checkpoint of another run that it began with
	StartedAt          Time      `json:"started_at" db:"started_at"`
	UpdatedAt          Time      `json:"updated_at" db:"updated_at"`
	EndedAt            Time      `json:"ended_at" db:"ended_at"`
	AccumulatedMS      int64     `json:"accumulated_ms" db:"accumulated_ms"` // time over all segments, with the present one
	StepsEnded         int64     `json:"steps_ended" db:"steps_ended"`       // since its last fresh start; each attempt counts
	Goal               Ref       `json:"goal" db:"goal"`
	Progress           *float64  `json:"progress" db:"progress"` // as declared; it should only grow
	ContinuationPrompt Ref       `json:"continuation_prompt" db:"continuation_prompt"`
	ExternalSession    Ref       `json:"external_session" db:"external_session"`
	Command            *Command  `json:"command" db:"command"` // how exec started its agent; null: nobody said
	WaitingPID         int       `json:"waiting_pid" db:"-"`   // the exec that goes on with it when a person has answered; 0: none
	Labels             Labels    `json:"labels" db:"labels"`
	HeartbeatTimeout   Duration  `json:"heartbeat_timeout" db:"-"` // 0: not watched
	ProgressTimeout    Duration  `json:"progress_timeout" db:"-"`
	Result             JSON      `json:"result" db:"result"`
	Error              Ref       `json:"error" db:"error"`
	Source             Ref       `json:"source" db:"source"`   // SourceOTLP if the run is observed; null if its agent reports it
	Partial            bool      `json:"partial" db:"partial"` // for an observed run: its emitter did not send everything
	// Drift is only in the answers to heartbeats and to the end of a run.
	Drift *DriftVerdict `json:"drift,omitempty" db:"-"`
	// These are only in the answers to heartbeats and about one run, on a host that belongs to a fleet.
	Lease       LeaseState  `json:"lease,omitempty" db:"-"`         // "" if the daemon does not know it yet and OnLeaseLost is continue
	LeaseLeftMS int64       `json:"lease_left_ms,omitempty" db:"-"` // how long the host may still act
	OnLeaseLost OnLeaseLost `json:"on_lease_lost,omitempty" db:"-"`
	// These are only in the answer about one run, on a host that belongs to a fleet.
	Host       string     `json:"host,omitempty" db:"-"` // the name of the host that owns the run
	Term       int64      `json:"term,omitempty" db:"-"`
	Ownership  string     `json:"ownership,omitempty" db:"-"` // held, doubtful, released or fenced
	Durability Durability `json:"durability,omitempty" db:"-"`
	FleetAsOf  int64      `json:"fleet_as_of,omitempty" db:"-"` // the engine has the audit log of this host up to this row
}

// OwnershipFenced is the Ownership of a run that another host of the fleet owns.
const OwnershipFenced = "fenced"

// LeaseState says whether the host that sends the answer still owns its runs in the fleet.
type LeaseState string

// The states of a lease.
const (
	LeaseHeld LeaseState = "held"
	LeaseLost LeaseState = "lost" // another host may own the run: begin nothing
)

// RunRequest registers a run, or adopts a run that its saves have created.
type RunRequest struct {
	Agent            string    `json:"-"`
	Run              string    `json:"run,omitempty"` // "" means MainRun
	Workflow         Ref       `json:"workflow,omitempty"`
	PID              int       `json:"pid,omitempty"`   // of the owner; 0: none is known, and only timeouts watch the run
	Epoch            *int64    `json:"epoch,omitempty"` // of the claim of the run that the caller has; nil: it has none
	ParentRun        Ref       `json:"parent_run,omitempty"`
	ForkFrom         Ref       `json:"fork_from,omitempty"` // a checkpoint of the same agent to begin with
	HeartbeatTimeout *Duration `json:"heartbeat_timeout,omitempty"`
	ProgressTimeout  *Duration `json:"progress_timeout,omitempty"`
	Goal             Ref       `json:"goal,omitempty"`
	ExternalSession  Ref       `json:"external_session,omitempty"`
	Labels           Labels    `json:"labels,omitempty"`
	AccumulatedMS    *int64    `json:"accumulated_ms,omitempty"`  // how long it ran elsewhere before it came here
	LeaveUncertain   bool      `json:"leave_uncertain,omitempty"` // a run that begins anew leaves an uncertain operation as it is; needs a reason
	Reason           string    `json:"reason,omitempty"`          // for the audit log
	IdempotencyKey   string    `json:"-"`
}

// The limits of the values of a run.
const (
	MaxText    = 64 << 10 // a goal, a continuation prompt, an error
	MaxValue   = 8 << 20  // JSON arguments, results, payloads
	MaxEvents  = 1000     // events of one batch
	maxTimeout = 30 * Day
)

// Check refuses an invalid request.
func (r *RunRequest) Check() error {
	checks := []func() error{
		func() error { return CheckAgentName(r.Agent) },
		func() error { return optional(r.Run, CheckRunName) },
		func() error { return optional(string(r.ParentRun), CheckRunName) },
		func() error { return optional(string(r.ForkFrom), CheckID) },
		func() error { return checkLong("workflow", string(r.Workflow)) },
		func() error { return checkLong("goal", string(r.Goal)) },
		func() error { return checkLong("external_session", string(r.ExternalSession)) },
		func() error { return CheckLabels(r.Labels) },
		func() error { return checkTimeout("heartbeat_timeout", r.HeartbeatTimeout) },
		func() error { return checkTimeout("progress_timeout", r.ProgressTimeout) },
		func() error { return checkLeaving(r.LeaveUncertain, r.Reason) },
	}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	if r.PID < 0 {
		return Errorf(CodeInvalid, "pid is %d: give the owner's process id, or leave it out", r.PID)
	}
	if r.AccumulatedMS != nil && *r.AccumulatedMS < 0 {
		return Errorf(CodeInvalid, "accumulated_ms is %d: it cannot be less than 0", *r.AccumulatedMS)
	}
	return nil
}

func checkLong(what, s string) error {
	if len(s) > MaxText {
		return Errorf(CodeTooLarge, "the %s is %d bytes long: at most %d are allowed", what, len(s), MaxText)
	}
	return nil
}

func checkTimeout(what string, d *Duration) error {
	if d == nil || (*d >= 0 && time.Duration(*d) <= maxTimeout) {
		return nil
	}
	return Errorf(CodeInvalid, "%s is %s: it must be 0 for none, or at most %s", what, *d, Duration(maxTimeout))
}

// RunFilter chooses runs. Empty fields choose all runs; a run must match all other fields.
type RunFilter struct {
	Agent    string
	Status   RunStatus
	Workflow string   // the exact name
	Labels   Labels   // a run must have all of these
	Goal     string   // each word must be a word of the goal; a word with * at its end matches the beginning of one
	Since    Time     // started at this time or later
	Until    Time     // started before
	Lives    bool     // earlier lives of runs too, such as main~1
	Severity Severity // has a finding of at least this severity that nobody has dismissed
	Sort     RunSort
	Before   string // a cursor
	Limit    int
}

// RunSort is an order of runs.
type RunSort string

// The orders of runs.
const (
	SortUpdated RunSort = "updated" // the last changed first; the default. A run that changes between two pages can be missed
	SortStarted RunSort = "started" // the last started first: each run that exists all the time is listed exactly once
)

// maxGoalWords is the maximum number of words to look for in goals.
const maxGoalWords = 16

// Check refuses an invalid filter.
func (f *RunFilter) Check() error {
	if err := CheckStatus("run", f.Status, RunStatuses); err != nil {
		return err
	}
	if err := optional(f.Agent, CheckAgentName); err != nil {
		return err
	}
	if err := checkLong("workflow", f.Workflow); err != nil {
		return err
	}
	if err := CheckLabels(f.Labels); err != nil {
		return err
	}
	if f.Goal != "" && len(GoalWords(f.Goal)) == 0 {
		return Errorf(CodeInvalid, "goal has no words: give one or more words of the goal, or the start of one followed by *")
	}
	if n := len(GoalWords(f.Goal)); n > maxGoalWords {
		return Errorf(CodeInvalid, "goal has %d words: at most %d are allowed", n, maxGoalWords)
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until.Time) {
		return Errorf(CodeInvalid, "since is %s and until is %s: since must be before until", f.Since, f.Until)
	}
	if f.Severity != "" {
		if err := checkSeverity(f.Severity); err != nil {
			return err
		}
	}
	switch f.Sort {
	case "", SortUpdated, SortStarted:
		return nil
	}
	return Errorf(CodeInvalid, "sort %q is unknown: it must be updated or started", cut(string(f.Sort)))
}

// GoalWord is a word to look for in goals.
type GoalWord struct {
	Text   string
	Prefix bool // it is the beginning of a word
}

// GoalWords splits a text into words in the way that the database splits goals: at blanks
// and at / - _ . , : " and \, without other punctuation around the words, with ASCII
// letters in lower case, at most 64 characters of each.
func GoalWords(text string) (words []GoalWord) {
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \n\r\t/-_.,:\"\\", r) }) {
		text, prefix := strings.CutSuffix(word, "*")
		text = strings.Trim(lowerASCII(text), ";!?()[]{}<>|'`#*+=&%$@~^")
		if runes := []rune(text); len(runes) > 64 {
			text = string(runes[:64])
		}
		if text != "" {
			words = append(words, GoalWord{text, prefix})
		}
	}
	return words
}

// lowerASCII does what lower does in SQLite: it changes ASCII letters only.
func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// RunPage is one page of runs.
type RunPage struct {
	Runs []Run `json:"runs"`
	Next Ref   `json:"next"`
}

// RunRef names a run, and the epoch of the writer that names it.
type RunRef struct {
	Agent string
	Run   string // "" means MainRun
	Epoch *int64 // nil if the writer knows none; then the write is not fenced
}

// Check refuses invalid names.
func (r RunRef) Check() error {
	if err := CheckAgentName(r.Agent); err != nil {
		return err
	}
	return optional(r.Run, CheckLife)
}

// Heartbeat reports that the owner is alive, and its progress.
type Heartbeat struct {
	Epoch    *int64   `json:"epoch,omitempty"`
	PID      int      `json:"pid,omitempty"` // the process of the owner that a supervisor reports for; default: the caller
	Progress *float64 `json:"progress,omitempty"`
}

// Check refuses an invalid owner.
func (b *Heartbeat) Check() error {
	if b.PID < 0 {
		return Errorf(CodeInvalid, "pid is %d: give the process id of the owner that you act for, or leave it out", b.PID)
	}
	return nil
}

// EndRequest ends a run, or its current segment.
type EndRequest struct {
	Epoch              *int64    `json:"epoch,omitempty"`
	Status             RunStatus `json:"status"` // completed, failed, suspended, awaiting_continuation or interrupted
	ContinuationPrompt Ref       `json:"continuation_prompt,omitempty"`
	Error              Ref       `json:"error,omitempty"`
	Result             JSON      `json:"result,omitempty"`
	State              JSON      `json:"state,omitempty"`           // if set, it is saved as the final checkpoint
	LeaveUncertain     bool      `json:"leave_uncertain,omitempty"` // end although an operation is uncertain; needs a reason
	Reason             string    `json:"reason,omitempty"`          // for the audit log
	IdempotencyKey     string    `json:"-"`
}

// Check refuses statuses that an owner cannot set.
func (r *EndRequest) Check() error {
	switch r.Status {
	case RunCompleted, RunFailed, RunSuspended, RunAwaitingContinuation, RunInterrupted, RunTimedOut:
	default:
		return Errorf(CodeInvalid, "status %q cannot end a run: use completed, failed, suspended, "+
			"awaiting_continuation, interrupted or timed_out", cut(string(r.Status)))
	}
	if err := checkLeaving(r.LeaveUncertain, r.Reason); err != nil {
		return err
	}
	if err := checkLong("continuation_prompt", string(r.ContinuationPrompt)); err != nil {
		return err
	}
	return checkLong("error", string(r.Error))
}

// SourceOTLP is the source of a run that is observed through OpenTelemetry.
const SourceOTLP = "otlp"
