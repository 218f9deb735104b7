package ckptsidecar

// StepStatus is the status of a step.
type StepStatus string

// The statuses of a step. An interrupted step lost its owner while it ran.
const (
	StepStarted     StepStatus = "started"
	StepSucceeded   StepStatus = "succeeded"
	StepFailed      StepStatus = "failed"
	StepInterrupted StepStatus = "interrupted"
)

// StepNegative is the outcome of a step whose answer is no, such as a search that found nothing or
// two files that differ. It is not an error, whatever its status.
const StepNegative = "negative"

// MaxTurn is the maximum length of the id of a turn.
const MaxTurn = 256

// Measures are what a step cost, and the progress of the run after it.
type Measures struct {
	DurationMS   *int64   `json:"duration_ms" db:"duration_ms"`
	InputTokens  *int64   `json:"input_tokens" db:"input_tokens"`
	OutputTokens *int64   `json:"output_tokens" db:"output_tokens"`
	CostUSD      *float64 `json:"cost_usd" db:"cost_usd"`
	Progress     *float64 `json:"progress" db:"progress"`
}

// Step is one unit of work inside a run.
type Step struct {
	Key       string     `json:"key" db:"key"`
	Name      string     `json:"name" db:"name"`
	Args      JSON       `json:"args" db:"args"`
	Status    StepStatus `json:"status" db:"status"`
	Attempt   int64      `json:"attempt" db:"attempt"`
	Result    JSON       `json:"result" db:"result"`
	Error     Ref        `json:"error" db:"error"`
	StartedAt Time       `json:"started_at" db:"started_at"`
	EndedAt   Time       `json:"ended_at" db:"ended_at"`
	Turn      Ref        `json:"turn" db:"turn"`       // the id of the model's answer that contains this call; null if not reported
	Outcome   Ref        `json:"outcome" db:"outcome"` // StepNegative, if the agent said so or the result shows it; null otherwise
	Measures
	Replayed bool `json:"replayed" db:"-"` // it succeeded before: use its result, and do not run it again
	// Drift is only in the answers to writes. It is the current verdict.
	Drift *DriftVerdict `json:"drift,omitempty" db:"-"`
	// Durability is only in the answers to writes.
	Durability Durability `json:"durability,omitempty" db:"-"`
}

// StepRequest begins a step. With a status, it records a whole step.
type StepRequest struct {
	Key            string     `json:"key"`
	Name           string     `json:"name,omitempty"`
	Epoch          *int64     `json:"epoch,omitempty"`
	Args           JSON       `json:"args,omitempty"`
	Status         StepStatus `json:"status,omitempty"` // "" or started begins it; succeeded or failed records a whole step
	Result         JSON       `json:"result,omitempty"`
	Error          Ref        `json:"error,omitempty"`
	Turn           Ref        `json:"turn,omitempty"`    // of the model: the id of its answer that contains this call
	Outcome        Ref        `json:"outcome,omitempty"` // StepNegative: the answer of the step was no
	DurationMS     *int64     `json:"duration_ms,omitempty"`
	InputTokens    *int64     `json:"input_tokens,omitempty"`
	OutputTokens   *int64     `json:"output_tokens,omitempty"`
	CostUSD        *float64   `json:"cost_usd,omitempty"`
	Progress       *float64   `json:"progress,omitempty"`
	Call           bool       `json:"call,omitempty"` // a call of its own: drift counts it also if the key has succeeded and its result is given again
	IdempotencyKey string     `json:"-"`
}

// Measured returns the measures in the request.
func (r *StepRequest) Measured() Measures {
	return Measures{r.DurationMS, r.InputTokens, r.OutputTokens, r.CostUSD, r.Progress}
}

// Check refuses an invalid request. A request that ends a step needs no name.
func (r *StepRequest) Check(finish bool) error {
	if err := CheckKey("step key", r.Key); err != nil {
		return err
	}
	if !finish {
		if err := CheckKey("step name", r.Name); err != nil {
			return err
		}
	}
	switch r.Status {
	case StepSucceeded, StepFailed:
	case "", StepStarted:
		if finish {
			return Errorf(CodeInvalid, "a step ends with status succeeded or failed")
		}
		if r.Result != nil || r.Error != "" {
			return Errorf(CodeInvalid, "a step that begins has no result and no error yet: use status succeeded or failed to record a whole step")
		}
	default:
		return Errorf(CodeInvalid, "status %q is unknown: it must be started, succeeded or failed", cut(string(r.Status)))
	}
	if err := r.checkTurn(); err != nil {
		return err
	}
	return checkLong("error", string(r.Error))
}

// checkTurn refuses an invalid turn or outcome.
func (r *StepRequest) checkTurn() error {
	switch {
	case len(r.Turn) > MaxTurn:
		return Errorf(CodeInvalid, "the turn is %d bytes long: at most %d are allowed", len(r.Turn), MaxTurn)
	case r.Outcome != "" && r.Outcome != StepNegative:
		return Errorf(CodeInvalid, "outcome %q is unknown: use negative where the answer was no, and otherwise leave it out", cut(string(r.Outcome)))
	case r.Outcome != "" && (r.Status == "" || r.Status == StepStarted):
		return Errorf(CodeInvalid, "a step that begins has no outcome yet")
	}
	return checkText("turn", string(r.Turn))
}

// StepPage is one page of steps, in the order in which they began.
type StepPage struct {
	Steps []Step `json:"steps"`
	Next  Ref    `json:"next"`
}

// ListFilter chooses a page of items that belong to a run.
type ListFilter struct {
	Status string
	Before string // a cursor: Next of the previous page
	Limit  int
}

// Event is a line of a run's append-only journal.
type Event struct {
	Seq     int64  `json:"seq" db:"seq"` // 1, 2, … in its run, without gaps
	At      Time   `json:"at" db:"at"`
	Type    string `json:"type" db:"type"`
	Payload JSON   `json:"payload" db:"payload"`
}

// OwnerEvent is an event with its place in the order of all events of its owner.
type OwnerEvent struct {
	N     int64  `json:"n" db:"-"` // identifies its place; it is not a count, and is never used again
	Agent string `json:"agent" db:"agent"`
	Run   string `json:"run" db:"run"`
	Event
}

// OwnerEventPage is one page of the events of all runs of an owner.
type OwnerEventPage struct {
	Events []OwnerEvent `json:"events"`
	Next   *int64       `json:"next"` // After of the next page, null on the last page
}

// NewEvent is an event to append.
type NewEvent struct {
	Type    string `json:"type"`
	Payload JSON   `json:"payload,omitempty"` // nil means {}
}

// CheckEvents refuses an invalid batch.
func CheckEvents(events []NewEvent) error {
	if len(events) == 0 || len(events) > MaxEvents {
		return Errorf(CodeInvalid, "there are %d events: send 1 to %d at once", len(events), MaxEvents)
	}
	for i := range events {
		if err := CheckKey("event type", events[i].Type); err != nil {
			return err
		}
	}
	return nil
}

// Appended is the answer to a batch of events: their sequence numbers.
type Appended struct {
	First int64 `json:"first"`
	Last  int64 `json:"last"`

	Durability Durability `json:"durability,omitempty"`
}

// EventPage is some events, oldest first.
type EventPage struct {
	Events []Event `json:"events"`
	Next   *int64  `json:"next"` // After of the next page, null on the last page
}
