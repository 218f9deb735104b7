package survey

import (
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// The limits of an overview.
const (
	OverviewBins = 120  // of each run
	DefaultRuns  = 200  // runs in an overview, where the query names no number
	MaxRuns      = 1000 // runs in an overview
	MaxNeeds     = 200  // needs in an overview
	GoalLength   = 200  // characters of a goal in an overview
)

// DefaultSpan is the time that an overview looks back, where nobody says since when.
const DefaultSpan = ckpt.Duration(2 * time.Hour)

const (
	minSpan = ckpt.Duration(time.Minute)
	maxSpan = ckpt.Duration(90 * ckpt.Day)
)

// OverviewQuery chooses what an overview shows.
//
//	GET /v1/overview?span=2h&limit=200
type OverviewQuery struct {
	Span  ckpt.Duration // how far the bins look back from now; 0 means two hours. One minute to 90 days
	Limit int           // runs; 0 means DefaultRuns
	ETag  string        // of the last answer, as If-None-Match has it; "" asks anew
}

// Check refuses a query that is wrong in itself.
func (q *OverviewQuery) Check() error {
	switch {
	case q.Span != 0 && (q.Span < minSpan || q.Span > maxSpan):
		return ckpt.Errorf(ckpt.CodeInvalid, "span is %s: it must be %s to %s", q.Span, minSpan, maxSpan)
	case q.Limit < 0 || q.Limit > MaxRuns:
		return ckpt.Errorf(ckpt.CodeInvalid, "limit must be between 1 and %[2]d; got %[1]d", q.Limit, MaxRuns)
	}
	return nil
}

// Overview is what an operator looks at first. It is one read of the database, and
// so from one moment.
type Overview struct {
	// ETag names this content. It is the value of the header ETag without its
	// quotation marks. A question with it in If-None-Match is answered 304 while
	// nothing of the answer but At has changed.
	ETag string    `json:"etag"`
	At   ckpt.Time `json:"at"` // when the daemon answered, by its clock

	// From and To are the ends of the time that the bins of the runs divide. To is
	// the end of the bin that At is in, so both stay while a bin lasts.
	From  ckpt.Time `json:"from"`
	To    ckpt.Time `json:"to"`
	BinMS int64     `json:"bin_ms"` // of one bin; there are OverviewBins

	Needs     []Need    `json:"needs"`      // the most urgent first
	MoreNeeds int64     `json:"more_needs"` // needs that did not fit into MaxNeeds
	Runs      []RunLine `json:"runs"`       // unfinished ones, and those that ended after From; the last changed first
	MoreRuns  int64     `json:"more_runs"`  // runs that did not fit into the limit
	Counts    Counts    `json:"counts"`     // of all that the caller may see, not of the runs in the list
}

// What a need is about, in the order of urgency.
const (
	NeedOperation = "operation" // an operation is uncertain: nobody knows whether it took effect
	NeedPrompt    = "prompt"    // a prompt is open
	NeedFinding   = "finding"   // a run has open critical findings
	NeedFindings  = "findings"  // so have more runs, which share one row
	NeedLostRun   = "lost_run"  // a run lost its owner and waits to be resumed
	NeedLostRuns  = "lost_runs" // so do more runs, which share one row
	NeedSecret    = "secret"    // states of a run may hold secrets
	NeedSecrets   = "secrets"   // so may those of more runs, which share one row
)

// NeedsOfAKind is how many runs have a row of their own for critical findings, for
// being lost, and for secrets. Those beyond share one row, of the plural kind.
const NeedsOfAKind = 3

// Need is something that waits for a person: one row for each cause. An uncertain
// operation stands for the decision about its run too; a run that is in an earlier
// row has no row for being lost.
type Need struct {
	What  string `json:"what"`  // one of the words above
	Key   string `json:"key"`   // names the need: the same while it lasts, and no other has it
	Count int64  `json:"count"` // what it stands for: findings of the run; runs of a shared row; else 1

	Owner string `json:"owner"` // "" in a shared row, as are agent and run
	Agent string `json:"agent"`
	Run   string `json:"run"`

	Since    ckpt.Time      `json:"since"`    // the oldest of what it stands for; of an operation, when its owner was found dead, else its beginning
	Text     string         `json:"text"`     // of an operation its name, of a prompt its question, of findings the newest message
	Why      string         `json:"why"`      // in words: why it waits. May be ""
	Status   ckpt.RunStatus `json:"status"`   // of the run; "" in a shared row
	Epoch    int64          `json:"epoch"`    // of the run, to see whether it has moved on
	Severity ckpt.Severity  `json:"severity"` // of the worst finding; "" without one

	// What it is about: send these back where the need is dealt with.
	Operation  string          `json:"operation"`   // the key of the uncertain operation, the oldest one of its run
	Attempt    int64           `json:"attempt"`     // of that operation; 0 without one
	Prompt     ckpt.Ref        `json:"prompt"`      // the open prompt; of an operation, the decision that waits with it
	PromptKind ckpt.PromptKind `json:"prompt_kind"` // "" without a prompt
	Finding    ckpt.Ref        `json:"finding"`     // the newest one
	Rule       string          `json:"rule"`        // of that finding
	Checkpoint ckpt.Ref        `json:"checkpoint"`  // of the operation, the prompt or the finding
}

// Counts are numbers of what the caller may see.
type Counts struct {
	Agents   int64                    `json:"agents"`
	Runs     int64                    `json:"runs"`
	Statuses map[ckpt.RunStatus]int64 `json:"statuses"` // runs by status as stored; a run that has saved nothing counts as running
	Needs    map[string]int64         `json:"needs"`    // counts by cause, before rows are put together
	Findings map[ckpt.Severity]int64  `json:"findings"` // open ones
}

// RunLine is a run in a list on one time axis.
type RunLine struct {
	Owner      string         `json:"owner" db:"owner"`
	Agent      string         `json:"agent" db:"agent"`
	Run        string         `json:"run" db:"run"`
	Workflow   ckpt.Ref       `json:"workflow" db:"workflow"`
	Goal       string         `json:"goal" db:"goal"` // its first GoalLength characters
	Labels     ckpt.Labels    `json:"labels" db:"-"`
	Status     ckpt.RunStatus `json:"status" db:"status"` // also starting, as elsewhere
	Epoch      int64          `json:"epoch" db:"epoch"`
	Attempt    int64          `json:"attempt" db:"attempt"`
	ForkedFrom ckpt.Ref       `json:"forked_from" db:"forked_from"`
	Source     ckpt.Ref       `json:"source" db:"source"` // otlp where it is observed

	StartedAt ckpt.Time `json:"started_at" db:"started_at"`
	UpdatedAt ckpt.Time `json:"updated_at" db:"updated_at"`
	EndedAt   ckpt.Time `json:"ended_at" db:"ended_at"`
	SegmentAt ckpt.Time `json:"segment_at" db:"segment_at"` // when its present segment began; null where nobody runs it
	SavedAt   ckpt.Time `json:"saved_at" db:"-"`            // of its newest checkpoint that is kept; null for none
	SavedSeq  int64     `json:"saved_seq" db:"-"`
	WorkedMS  int64     `json:"worked_ms" db:"accumulated_ms"` // over all segments but the present one, which goes on from SegmentAt

	Progress     *float64 `json:"progress" db:"progress"` // 0 to 1, as declared
	Steps        int64    `json:"steps" db:"steps_ended"` // that ended since its present beginning, every attempt of each
	InputTokens  int64    `json:"input_tokens" db:"input_tokens"`
	OutputTokens int64    `json:"output_tokens" db:"output_tokens"`
	CostUSD      float64  `json:"cost_usd" db:"cost_usd"`
	StoredBytes  int64    `json:"stored_bytes" db:"stored_bytes"`

	Findings  int64         `json:"findings" db:"-"`  // open ones
	Worst     ckpt.Severity `json:"worst" db:"-"`     // of these; "" for none
	Uncertain int64         `json:"uncertain" db:"-"` // operations
	Prompts   int64         `json:"prompts" db:"-"`   // open ones

	Segments []Segment `json:"segments" db:"-"` // those that reach into the time of the overview, oldest first; at most 20, the newest
	Bins     []RunBin  `json:"bins" db:"-"`     // those in which something happened, in order
}

// RunBin is what happened to a run in one bin: from From + I × BinMS on.
type RunBin struct {
	I          int           `json:"i"`
	Steps      int64         `json:"steps,omitempty"`      // that began
	Failed     int64         `json:"failed,omitempty"`     // of these, those that failed or were interrupted
	Operations int64         `json:"operations,omitempty"` // that began
	Findings   int64         `json:"findings,omitempty"`   // open and closed
	Worst      ckpt.Severity `json:"worst,omitempty"`      // of these
	Open       int64         `json:"open,omitempty"`       // of these, those that are open
}
