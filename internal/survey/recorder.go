package survey

import ckpt "github.com/ckptsidecar/ckptsidecar"

// The limits of a recorder. Four lanes have marks or bins, so an answer has at most
// four times MaxBins of them.
const (
	DefaultBins = 240
	MinBins     = 10
	MaxBins     = 300
	WholeBins   = 120 // in the lane that shows the whole run
	MaxSegments = 200
)

// RecorderQuery chooses which part of a run a recorder shows.
//
//	GET /v1/agents/{agent}/runs/{run}/recorder?from=…&to=…&bins=240
type RecorderQuery struct {
	From, To ckpt.Time // the view; zero means the beginning and the end of the run
	Bins     int       // of each lane; 0 means DefaultBins
}

// Check refuses a query that is invalid in itself.
func (q *RecorderQuery) Check() error {
	switch {
	case q.Bins != 0 && (q.Bins < MinBins || q.Bins > MaxBins):
		return ckpt.Errorf(ckpt.CodeInvalid, "bins is %d: it must be %d to %d", q.Bins, MinBins, MaxBins)
	case !q.From.IsZero() && !q.To.IsZero() && !q.From.Before(q.To.Time):
		return ckpt.Errorf(ckpt.CodeInvalid, "from is %s and to is %s: from must be before to", q.From, q.To)
	}
	return nil
}

// Recorder is a run as its flight recorder shows it. A lane has the marks themselves if
// at most Bins of them are in the view. Otherwise it has bins and no marks.
type Recorder struct {
	Owner   string         `json:"owner"`
	Agent   string         `json:"agent"`
	Run     string         `json:"run"`
	Status  ckpt.RunStatus `json:"status"`
	Epoch   int64          `json:"epoch"`
	Attempt int64          `json:"attempt"`
	At      ckpt.Time      `json:"at"` // when the daemon answered

	Began ckpt.Time `json:"began"` // the first thing that is known about the run
	Ended ckpt.Time `json:"ended"` // the last thing; At for a running run
	From  ckpt.Time `json:"from"`  // the view; Began and Ended if the query does not say
	To    ckpt.Time `json:"to"`
	Bins  int       `json:"bins"`   // of each lane that is in bins
	BinMS int64     `json:"bin_ms"` // of one bin; the last one can extend beyond To

	Segments    []Segment      `json:"segments"` // of the whole run, oldest first; only the newest MaxSegments
	Steps       StepLane       `json:"steps"`
	Operations  OperationLane  `json:"operations"`
	Checkpoints CheckpointLane `json:"checkpoints"` // those that still exist
	Findings    FindingLane    `json:"findings"`

	Whole Whole `json:"whole"` // the lane below all others, to select a view
	Sums  Sums  `json:"sums"`  // of the whole run since it last began from nothing
}

// Segment is the time in which one owner ran a run. Between two segments no owner did.
type Segment struct {
	Attempt int64     `json:"attempt"` // 1, 2, …; a run that goes on after it was taken for dead repeats its number
	From    ckpt.Time `json:"from"`
	To      ckpt.Time `json:"to"` // the last heartbeat in it; null while it lasts
	// How says how it ended: interrupted, timed_out, suspended, awaiting_continuation, completed or failed;
	// "" while it lasts.
	How string `json:"how"`
	PID int    `json:"pid"` // of its owner, 0 if it is not known
}

// StepLane are the steps that began in the view.
type StepLane struct {
	Count int64      `json:"count"`
	Marks []StepMark `json:"marks"` // in the order in which they began
	Bins  []StepBin  `json:"bins"`
}

// StepMark is a step without its arguments and result.
type StepMark struct {
	Key       string          `json:"key" db:"key"`
	Name      string          `json:"name" db:"name"`
	Status    ckpt.StepStatus `json:"status" db:"status"`
	Attempt   int64           `json:"attempt" db:"attempt"`
	StartedAt ckpt.Time       `json:"started_at" db:"started_at"`
	EndedAt   ckpt.Time       `json:"ended_at" db:"ended_at"`
	Error     string          `json:"error" db:"error"` // its first 200 characters
	Outcome   ckpt.Ref        `json:"outcome" db:"outcome"`
	ckpt.Measures
}

// StepBin are the steps that began in a bin. The bin begins at From + I × BinMS.
type StepBin struct {
	I      int   `json:"i"`
	Count  int64 `json:"count"`
	Failed int64 `json:"failed"` // or interrupted
}

// OperationLane are the operations that began in the view, and those that began before
// and are still open or uncertain.
type OperationLane struct {
	Count int64           `json:"count"`
	Marks []OperationMark `json:"marks"`
	Bins  []OperationBin  `json:"bins"`
}

// OperationMark is an attempt of an operation.
type OperationMark struct {
	Key        string               `json:"key" db:"key"`
	Name       string               `json:"name" db:"name"`
	Attempt    int64                `json:"attempt" db:"attempt"`
	Status     ckpt.OperationStatus `json:"status" db:"status"`
	Checkpoint ckpt.Ref             `json:"checkpoint" db:"checkpoint"`
	StartedAt  ckpt.Time            `json:"started_at" db:"started_at"`
	EndedAt    ckpt.Time            `json:"ended_at" db:"ended_at"`
}

// OperationBin are the operations that began in a bin.
type OperationBin struct {
	I         int   `json:"i"`
	Count     int64 `json:"count"`
	Failed    int64 `json:"failed"`
	Uncertain int64 `json:"uncertain"`
}

// CheckpointLane are the checkpoints that were saved in the view and still exist.
type CheckpointLane struct {
	Count int64            `json:"count"`
	Marks []CheckpointMark `json:"marks"` // by seq
	Bins  []CheckpointBin  `json:"bins"`
}

// CheckpointMark is a checkpoint without its state, labels and metadata.
type CheckpointMark struct {
	ID         string    `json:"id" db:"id"`
	Seq        int64     `json:"seq" db:"seq"`
	Kind       ckpt.Kind `json:"kind" db:"kind"`
	Parent     ckpt.Ref  `json:"parent" db:"parent"`
	CreatedAt  ckpt.Time `json:"created_at" db:"created_at"`
	Size       int64     `json:"size" db:"size"`               // of the state
	StoredSize int64     `json:"stored_size" db:"stored_size"` // what the save added
	Step       ckpt.Ref  `json:"step" db:"step"`
	Operation  ckpt.Ref  `json:"operation" db:"operation"`
	Pinned     bool      `json:"pinned" db:"pinned"`
	Suspect    bool      `json:"suspect" db:"suspect"`
}

// CheckpointBin are the checkpoints that were saved in a bin.
type CheckpointBin struct {
	I            int   `json:"i"`
	Routine      int64 `json:"routine"`
	PreOperation int64 `json:"pre_operation"`
	Recovery     int64 `json:"recovery"`
	Suspect      int64 `json:"suspect"`
	Pinned       int64 `json:"pinned"`
	Largest      int64 `json:"largest"`   // of their states, in bytes
	FirstSeq     int64 `json:"first_seq"` // to zoom to them
	LastSeq      int64 `json:"last_seq"`
}

// FindingLane are the findings of the view, open and closed.
type FindingLane struct {
	Count int64         `json:"count"`
	Marks []FindingMark `json:"marks"` // oldest first
	Bins  []FindingBin  `json:"bins"`
}

// FindingMark is a finding without its evidence.
type FindingMark struct {
	ID         string        `json:"id" db:"id"`
	At         ckpt.Time     `json:"at" db:"at"`
	Rule       string        `json:"rule" db:"rule"`
	Severity   ckpt.Severity `json:"severity" db:"severity"`
	Message    string        `json:"message" db:"message"`
	Checkpoint ckpt.Ref      `json:"checkpoint" db:"checkpoint"`
	Closed     ckpt.Ref      `json:"closed" db:"closed"` // dismissed, resumed, restored or begun_anew; null while open
}

// FindingBin are the findings of a bin.
type FindingBin struct {
	I     int           `json:"i"`
	Count int64         `json:"count"`
	Open  int64         `json:"open"`
	Worst ckpt.Severity `json:"worst"`
}

// Whole is the whole run in WholeBins bins, independent of the view. A bin begins at
// Began + I × BinMS.
type Whole struct {
	BinMS int64     `json:"bin_ms"`
	Steps []StepBin `json:"steps"` // those in which steps began
}

// Sums are totals of a whole run since it last began from nothing.
type Sums struct {
	Steps        int64   `json:"steps"`       // the known steps, each once
	Failed       int64   `json:"failed"`      // how many of these failed or were interrupted
	StepsEnded   int64   `json:"steps_ended"` // all attempts of steps that ended
	Operations   int64   `json:"operations"`
	Checkpoints  int64   `json:"checkpoints"` // those that still exist
	Saves        int64   `json:"saves"`       // all saves that were ever made: the newest seq
	Findings     int64   `json:"findings"`    // open and closed
	InputTokens  int64   `json:"input_tokens"`
	OutputTokens int64   `json:"output_tokens"`
	CostUSD      float64 `json:"cost_usd"`
	WorkedMS     int64   `json:"worked_ms"` // over all segments, up to At
	StoredBytes  int64   `json:"stored_bytes"`
}
