package survey

import (
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// The limits of an overview.
const (
	OverviewBins = 120  // of each run
	DefaultRuns  = 200  // runs in an overview if the query names no number
	MaxRuns      = 1000 // runs in an overview
	MaxNeeds     = 200  // needs in an overview
	GoalLength   = 200  // characters of a goal in an overview
)

// DefaultSpan is how far an overview looks back if the query does not say.
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
	ETag  string        // of the last answer, as in If-None-Match; "" to get the whole answer
}

// Check refuses a query that is invalid in itself.
func (q *OverviewQuery) Check() error {
	switch {
	case q.Span != 0 && (q.Span < minSpan || q.Span > maxSpan):
		return ckpt.Errorf(ckpt.CodeInvalid, "span is %s: it must be %s to %s", q.Span, minSpan, maxSpan)
	case q.Limit < 0 || q.Limit > MaxRuns:
		return ckpt.Errorf(ckpt.CodeInvalid, "limit must be between 1 and %[2]d; got %[1]d", q.Limit, MaxRuns)
	}
	return nil
}

// Overview is what an operator looks at first. It comes from one read of the database,
// so all of it is from the same moment.
type Overview struct {
	// ETag names this content. It is the value of the ETag header without the quotation
	// marks. A request with it in If-None-Match gets 304 while nothing of the answer but
	// At has changed.
	ETag string    `json:"etag"`
	At   ckpt.Time `json:"at"` // when the daemon answered, by its clock

	// From and To are the ends of the period that the bins of the runs divide. To is the
	// end of the bin that contains At, so both stay the same while a bin lasts.
	From  ckpt.Time `json:"from"`
	To    ckpt.Time `json:"to"`
	BinMS int64     `json:"bin_ms"` // of one bin; there are OverviewBins of them

	Needs     []Need    `json:"needs"`      // the most urgent first
	MoreNeeds int64     `json:"more_needs"` // needs that did not fit into MaxNeeds
	Runs      []RunLine `json:"runs"`       // unfinished runs, and those that ended after From; last changed first
	MoreRuns  int64     `json:"more_runs"`  // runs that did not fit into the limit
	Counts    Counts    `json:"counts"`     // of everything that the caller may see, not only of the runs in the list
}

// The causes of needs, most urgent first.
const (
	NeedOperation = "operation" // an operation is uncertain: nobody knows whether it took effect
	NeedPrompt    = "prompt"    // a prompt is open
	NeedFinding   = "finding"   // a run has open critical findings
	NeedFindings  = "findings"  // more runs have them, and share one row
	NeedLostRun   = "lost_run"  // nobody runs a run that may go on: it lost its owner, or a person has answered for it
	NeedLostRuns  = "lost_runs" // more runs did, and share one row
	NeedSecret    = "secret"    // states of a run may hold secrets
	NeedSecrets   = "secrets"   // states of more runs may, and share one row
)

// NeedsOfAKind is how many runs have a row of their own for critical findings, for a
// lost owner, and for secrets. The other runs share one row, whose kind is the plural.
const NeedsOfAKind = 3

// Need is something that waits for a person. Each cause has one row. An uncertain
// operation also stands for the decision about its run. A run that is in an earlier row
// has no row for a lost owner.
type Need struct {
	What  string `json:"what"`  // one of the constants above
	Key   string `json:"key"`   // names the need: stays the same while it lasts, and no other need has it
	Count int64  `json:"count"` // how many things it stands for: findings of the run; runs of a shared row; otherwise 1

	Owner string `json:"owner"` // "" in a shared row, as are agent and run
	Agent string `json:"agent"`
	Run   string `json:"run"`

	// Since is from the oldest thing that the need stands for. For an operation it is when its owner was found
	// dead, otherwise when the operation began.
	Since    ckpt.Time      `json:"since"`
	Text     string         `json:"text"`     // operation's name, prompt's question, or newest finding's message
	Why      string         `json:"why"`      // why it waits, in words; can be ""
	Status   ckpt.RunStatus `json:"status"`   // of the run; "" in a shared row
	Epoch    int64          `json:"epoch"`    // of the run, to detect whether it has moved on
	Severity ckpt.Severity  `json:"severity"` // of the worst finding; "" if there is none

	// What the need is about: send these back when you handle it.
	Operation  string          `json:"operation"`   // the key of the uncertain operation, the oldest one of its run
	Attempt    int64           `json:"attempt"`     // of that operation; 0 if there is none
	Prompt     ckpt.Ref        `json:"prompt"`      // the open prompt; for an operation, the decision that waits with it
	PromptKind ckpt.PromptKind `json:"prompt_kind"` // "" if there is no prompt
	Finding    ckpt.Ref        `json:"finding"`     // the newest one
	Rule       string          `json:"rule"`        // of that finding
	Checkpoint ckpt.Ref        `json:"checkpoint"`  // of the operation, the prompt or the finding

	// Who goes on with the run.
	MayGoOn    bool          `json:"may_go_on"`   // a lost run that somebody has answered for: it may go on, and nobody runs it
	WaitingPID int           `json:"waiting_pid"` // the exec that goes on with it when a person has answered; 0: none
	Command    *ckpt.Command `json:"command"`     // how exec started its agent; null: nobody said, or a shared row
}

// Counts are numbers of everything that the caller may see.
type Counts struct {
	Agents   int64                    `json:"agents"`
	Runs     int64                    `json:"runs"`
	Statuses map[ckpt.RunStatus]int64 `json:"statuses"` // runs by status as stored; a run that has saved nothing counts as running
	Needs    map[string]int64         `json:"needs"`    // counts by cause, before rows are merged
	Findings map[ckpt.Severity]int64  `json:"findings"` // open findings
}

// RunLine is a run in a list of runs that share one time axis.
type RunLine struct {
	Owner      string         `json:"owner" db:"owner"`
	Agent      string         `json:"agent" db:"agent"`
	Run        string         `json:"run" db:"run"`
	Workflow   ckpt.Ref       `json:"workflow" db:"workflow"`
	Goal       string         `json:"goal" db:"goal"` // its first GoalLength characters
	Labels     ckpt.Labels    `json:"labels" db:"-"`
	Status     ckpt.RunStatus `json:"status" db:"status"` // can also be starting, as elsewhere
	Epoch      int64          `json:"epoch" db:"epoch"`
	Attempt    int64          `json:"attempt" db:"attempt"`
	ForkedFrom ckpt.Ref       `json:"forked_from" db:"forked_from"`
	Source     ckpt.Ref       `json:"source" db:"source"` // otlp if the run is observed
	WaitingPID int            `json:"waiting_pid" db:"-"` // the exec that goes on with it when a person has answered; 0: none

	StartedAt ckpt.Time `json:"started_at" db:"started_at"`
	UpdatedAt ckpt.Time `json:"updated_at" db:"updated_at"`
	EndedAt   ckpt.Time `json:"ended_at" db:"ended_at"`
	SegmentAt ckpt.Time `json:"segment_at" db:"segment_at"` // when its current segment began; null if no owner runs it
	SavedAt   ckpt.Time `json:"saved_at" db:"-"`            // of its newest existing checkpoint; null for none
	SavedSeq  int64     `json:"saved_seq" db:"-"`
	WorkedMS  int64     `json:"worked_ms" db:"accumulated_ms"` // over all segments except the current one

	Progress     *float64 `json:"progress" db:"progress"` // 0 to 1, as declared
	Steps        int64    `json:"steps" db:"steps_ended"` // all attempts that ended since the run last began from nothing
	InputTokens  int64    `json:"input_tokens" db:"input_tokens"`
	OutputTokens int64    `json:"output_tokens" db:"output_tokens"`
	CostUSD      float64  `json:"cost_usd" db:"cost_usd"`
	StoredBytes  int64    `json:"stored_bytes" db:"stored_bytes"`

	Findings  int64         `json:"findings" db:"-"`  // open findings
	Worst     ckpt.Severity `json:"worst" db:"-"`     // of these; "" for none
	Uncertain int64         `json:"uncertain" db:"-"` // uncertain operations
	Prompts   int64         `json:"prompts" db:"-"`   // open prompts

	Segments []Segment `json:"segments" db:"-"` // the newest 20 that overlap the overview's period, oldest first
	Bins     []RunBin  `json:"bins" db:"-"`     // those in which something happened, in order
}

// RunBin is what happened to a run in one bin. The bin begins at From + I × BinMS.
type RunBin struct {
	I          int           `json:"i"`
	Steps      int64         `json:"steps,omitempty"`      // steps that began
	Failed     int64         `json:"failed,omitempty"`     // how many of these failed or were interrupted
	Operations int64         `json:"operations,omitempty"` // operations that began
	Findings   int64         `json:"findings,omitempty"`   // open and closed
	Worst      ckpt.Severity `json:"worst,omitempty"`      // the worst severity of these
	Open       int64         `json:"open,omitempty"`       // how many of these are open
}
