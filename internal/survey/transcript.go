package survey

import ckpt "github.com/ckptsidecar/ckptsidecar"

// The limits of a transcript.
const (
	DefaultSteps = 50   // on a page
	MaxSteps     = 200  // on a page
	DefaultText  = 1000 // characters of each text of a step
	MaxText      = 1 << 18
	MaxCauses    = 20
	MaxHeard     = 50 // events on a page
)

// TranscriptQuery chooses a page of a run's steps, in the order in which they began. At most one of At, Before, After
// and From is set. Without them, the page has the newest steps.
//
//	GET /v1/agents/{agent}/runs/{run}/transcript?at=&before=&after=&from=&failed=true&text=&limit=
type TranscriptQuery struct {
	At     string    // the key of the first step of the page
	Before string    // the key of the step after the page
	After  string    // the key of the step before the page
	From   ckpt.Time // the page begins with the first step that began at this time or later
	Failed bool      // only steps that failed or were interrupted
	Text   int       // how many characters of each text; 0 means DefaultText
	Limit  int       // steps; 0 means DefaultSteps
}

// Check refuses a query that is invalid in itself.
func (q *TranscriptQuery) Check() error {
	places := 0
	for _, is := range []bool{q.At != "", q.Before != "", q.After != "", !q.From.IsZero()} {
		if is {
			places++
		}
	}
	switch {
	case places > 1:
		return ckpt.Errorf(ckpt.CodeInvalid, "give one of at, before, after and from")
	case q.Text < 0 || q.Text > MaxText:
		return ckpt.Errorf(ckpt.CodeInvalid, "text must be between 1 and %[2]d; got %[1]d", q.Text, MaxText)
	case q.Limit < 0 || q.Limit > MaxSteps:
		return ckpt.Errorf(ckpt.CodeInvalid, "limit must be between 1 and %[2]d; got %[1]d", q.Limit, MaxSteps)
	}
	return nil
}

// Transcript is a page of what a run did, with arguments and results.
type Transcript struct {
	Steps   []TranscriptStep `json:"steps"`   // in the order in which they began
	Earlier bool             `json:"earlier"` // there are steps before the page
	Later   bool             `json:"later"`   // there are steps after the page
	// Events are what the run reported between the first step of the page and the page after it: the newest MaxHeard.
	Events []HeardEvent `json:"events"`
	Causes []StepCause  `json:"causes"` // of the newest failures, the most frequent first; only for failed=true
}

// TranscriptStep is a step with the beginnings of its texts.
type TranscriptStep struct {
	Key        string          `json:"key" db:"key"`
	Name       string          `json:"name" db:"name"`
	Status     ckpt.StepStatus `json:"status" db:"status"`
	Attempt    int64           `json:"attempt" db:"attempt"`
	Args       string          `json:"args" db:"args"`           // the beginning of the JSON text; "" for none
	ArgsSize   int64           `json:"args_size" db:"args_size"` // of the whole text, in characters
	Result     string          `json:"result" db:"result"`       // the beginning of the JSON text; "" for none
	ResultSize int64           `json:"result_size" db:"result_size"`
	Error      string          `json:"error" db:"error"` // its beginning
	ErrorSize  int64           `json:"error_size" db:"error_size"`
	StartedAt  ckpt.Time       `json:"started_at" db:"started_at"`
	EndedAt    ckpt.Time       `json:"ended_at" db:"ended_at"`
	Turn       ckpt.Ref        `json:"turn" db:"turn"`
	Outcome    ckpt.Ref        `json:"outcome" db:"outcome"`
	ckpt.Measures
}

// HeardEvent is an event with the beginning of its payload.
type HeardEvent struct {
	Seq     int64     `json:"seq" db:"seq"`
	At      ckpt.Time `json:"at" db:"at"`
	Type    string    `json:"type" db:"type"`
	Payload string    `json:"payload" db:"payload"`
	Size    int64     `json:"size" db:"size"` // of the whole payload, in characters
}

// StepCause are the failures that have the same cause.
type StepCause struct {
	Count int64     `json:"count" db:"count"`
	Name  string    `json:"name" db:"name"`   // of the newest step
	Error string    `json:"error" db:"error"` // of the newest step: its first 200 characters
	Key   string    `json:"key" db:"key"`     // of the newest step
	At    ckpt.Time `json:"at" db:"at"`       // when the newest step began
}
