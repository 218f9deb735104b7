package ckptsidecar

import (
	"encoding/json"
	"strings"
)

// Checkpoint is a saved state, with or without the state itself.
type Checkpoint struct {
	ID          string          `json:"id" db:"id"`
	Agent       string          `json:"agent" db:"agent"`
	Owner       string          `json:"owner" db:"owner"`
	Run         string          `json:"run" db:"run"`
	Seq         int64           `json:"seq" db:"seq"` // 1, 2, … in its run; never reused
	Kind        Kind            `json:"kind" db:"kind"`
	Parent      Ref             `json:"parent" db:"parent"` // the checkpoint that this state came from
	CreatedAt   Time            `json:"created_at" db:"created_at"`
	Size        int64           `json:"size" db:"size"`               // bytes of the state
	StoredSize  int64           `json:"stored_size" db:"stored_size"` // bytes that this save added to the database
	SHA256      string          `json:"sha256" db:"sha256"`           // of the state, 64 hexadecimal digits
	ContentType string          `json:"content_type" db:"content_type"`
	Labels      Labels          `json:"labels" db:"labels"`
	Metadata    json.RawMessage `json:"metadata" db:"metadata"`
	Program     *Program        `json:"program,omitempty" db:"program"`
	Step        Ref             `json:"step" db:"step"`
	Operation   Ref             `json:"operation" db:"operation"`
	Pinned      bool            `json:"pinned" db:"pinned"`
	Suspect     bool            `json:"suspect" db:"suspect"`
	Trees       []string        `json:"trees,omitempty" db:"-"` // the ids of the trees of its files

	// State is the bytes of the state if the caller asked for them, nil otherwise. On the wire it is
	// "state" if it is JSON, and "state_base64" if it is not.
	State []byte `json:"-" db:"-"`
}

// ContentTypeJSON is the content type of JSON states.
const ContentTypeJSON = "application/json"

// IsJSON reports whether a content type promises one JSON value.
func IsJSON(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	return media == ContentTypeJSON || strings.HasSuffix(media, "+json")
}

// Program is generated code and the part of it that has run. With it, a resumed agent continues with
// exactly the rest.
type Program struct {
	Source   string `json:"source"`
	Executed int64  `json:"executed"` // bytes of Source that have run
}

// Check refuses an offset that is outside the source or inside a character.
func (p *Program) Check() error {
	switch {
	case p == nil:
		return nil
	case p.Executed < 0 || p.Executed > int64(len(p.Source)):
		return Errorf(CodeInvalid, "program.executed is %d, which is outside the source of %d bytes", p.Executed, len(p.Source))
	case p.Executed < int64(len(p.Source)) && p.Source[p.Executed]&0xC0 == 0x80:
		return Errorf(CodeInvalid, "program.executed is %d, in the middle of a UTF-8 character", p.Executed)
	}
	return nil
}

// SaveRequest asks for a checkpoint.
type SaveRequest struct {
	ID             string // made by the client (then it is the idempotency key), or "" to let the daemon make one
	IdempotencyKey string // "" for none; unused if ID is set
	Agent          string
	Run            string // "" means MainRun
	Kind           Kind
	Epoch          *int64 // the writer's fencing token; nil if the writer knows none
	Parent         Ref    // "" means the run's newest or last restored checkpoint
	ForkFrom       Ref    // "" or a checkpoint of the same owner that a new run begins with; the run must not exist
	Step           Ref
	Labels         Labels
	Metadata       json.RawMessage // a JSON object, or nil
	Program        *Program
	ContentType    string
	Trees          []string // the ids of the trees of its files, at most MaxTrees: one for each root
	State          []byte   // the callee takes it over: the caller must not change it afterwards
	Lent           bool     // the store has lent the memory of State: the caller must not read it afterwards either

	// Same lists, in order, the parts that State shares with the state whose SHA-256 is SameAs, if
	// they are known. It saves a comparison, so it must be true.
	Same   []Copy
	SameAs string
}

// Copy is a part that a text shares with an earlier text: the Length bytes at At equal the bytes of
// the earlier text at From.
type Copy struct{ At, From, Length int }

// Check refuses an invalid request. It does not read the state and the metadata; internal/wellformed
// reads them.
func (r *SaveRequest) Check() error {
	checks := []func() error{
		func() error { return CheckAgentName(r.Agent) },
		func() error { return optional(r.Run, CheckRunName) },
		func() error { return CheckKind(r.Kind) },
		func() error { return optional(r.ID, CheckID) },
		func() error { return optional(string(r.Parent), CheckID) },
		func() error { return optional(string(r.ForkFrom), CheckID) },
		func() error { return optional(string(r.Step), func(s string) error { return CheckKey("step", s) }) },
		func() error {
			return optional(r.IdempotencyKey, func(s string) error { return CheckKey("Idempotency-Key", s) })
		},
		func() error { return CheckLabels(r.Labels) },
		func() error { return CheckContentType(r.ContentType) },
		r.Program.Check,
		func() error { return CheckTrees(r.Trees) },
	}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func optional(s string, check func(string) error) error {
	if s == "" {
		return nil
	}
	return check(s)
}

// Saved is the answer to a save: the checkpoint that is now on disk.
type Saved struct {
	Checkpoint
	Pruned   []string      `json:"pruned"` // ids of the checkpoints that this save's retention removed
	Drift    *DriftVerdict `json:"drift"`  // the current verdict, even if the reply is a replay
	Replayed bool          `json:"-"`      // this is the reply to the first request, given again
	AsSent   bool          `json:"-"`      // the state is stored byte for byte as it was sent: nothing was redacted
	// Durability is absent if this host has no engine of a fleet and the policy asks for none.
	Durability Durability `json:"durability,omitempty"`
}

// CheckpointFilter chooses checkpoints of one agent.
type CheckpointFilter struct {
	Agent   string
	Run     string // "" means every run
	Kind    Kind   // "" means every kind
	Labels  Labels // a checkpoint must have all of them
	Suspect *bool
	Clean   bool   // neither suspect nor in doubt because of an open finding
	Before  string // a cursor: Next of the previous page
	Limit   int    // 0 means DefaultLimit; at most MaxLimit
}

// The sizes of pages.
const (
	DefaultLimit = 50
	MaxLimit     = 1000
)

// CheckpointPage is one page of a list, newest first.
type CheckpointPage struct {
	Checkpoints []Checkpoint `json:"checkpoints"`
	Next        Ref          `json:"next"` // the cursor of the next page, null on the last page
}

// CheckpointPatch changes the labels and the pin of a checkpoint. A nil field stays unchanged.
type CheckpointPatch struct {
	Labels *Labels `json:"labels,omitempty"` // replaces all labels
	Pinned *bool   `json:"pinned,omitempty"` // a pinned checkpoint is never removed by retention
}

// RestoreRequest chooses the checkpoint to go back to.
type RestoreRequest struct {
	Agent          string `json:"-"`
	Checkpoint     string `json:"checkpoint,omitempty"` // an id; "" means the newest one that the other members allow
	Kind           Kind   `json:"kind,omitempty"`
	Clean          bool   `json:"clean,omitempty"` // skip suspect checkpoints
	Run            string `json:"run,omitempty"`   // "" means the run of the checkpoint, or MainRun
	Reason         string `json:"reason,omitempty"`
	IdempotencyKey string `json:"-"`
}

// Removal is a checkpoint that was removed or would be removed, and the reason.
type Removal struct {
	Checkpoint string `json:"checkpoint"`
	Agent      string `json:"agent"`
	Run        string `json:"run"`
	Kind       Kind   `json:"kind"`
	Seq        int64  `json:"seq"`
	StoredSize int64  `json:"stored_size"`
	Reason     string `json:"reason"`
}
