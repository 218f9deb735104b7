// Package observed defines what is kept of an OpenTelemetry span. The decoder, the receiver and
// the store share these types.
//
// This package may import the root package.
package observed

import ckpt "github.com/ckptsidecar/ckptsidecar"

// Kind is the meaning of an OpenTelemetry span for the daemon.
type Kind string

// The kinds of spans. A span of no kind is counted and not stored.
const (
	Tool      Kind = "tool"      // a call of a tool: a step
	Inference Kind = "inference" // a call of a model: a turn and its usage, never a step
	Agent     Kind = "agent"     // a segment of a run
	Structure Kind = "structure" // it shows which spans are below which; the root of a trace also ends a run
)

// Content is what is stored of the arguments and the results of tools.
type Content string

// The ways to store content. The drift detectors compare the hashes of a call. They are keyed with
// a secret of the database, so they reveal nothing about the content.
const (
	Hash Content = "hash" // keyed hashes, and no text
	None Content = "none" // nothing; it is not even read
	Keep Content = "keep" // the text, without what looks like a secret
)

// Contents lists every way to store content.
var Contents = []Content{Hash, None, Keep}

// Span is the part of an OpenTelemetry span that the daemon uses.
type Span struct {
	Trace     string    `json:"trace"`            // 32 hex digits
	ID        string    `json:"id"`               // 16 hex digits
	Parent    string    `json:"parent,omitempty"` // "" for the root of its trace
	Kind      Kind      `json:"kind"`
	Run       string    `json:"run,omitempty"`        // the conversation, as a name of a run; "" if the span does not say
	RootAgent string    `json:"root_agent,omitempty"` // counts if the span is the root
	Agent     string    `json:"agent,omitempty"`
	Service   string    `json:"service,omitempty"`
	Call      string    `json:"call,omitempty"` // the model's id of the call; not unique
	Name      string    `json:"name,omitempty"` // of the tool
	Began     ckpt.Time `json:"began"`
	Ended     ckpt.Time `json:"ended"`
	BeganNS   int64     `json:"began_ns"` // the same to the nanosecond, for the order
	EndedNS   int64     `json:"ended_ns"`
	Failed    bool      `json:"failed,omitempty"`
	Error     string    `json:"error,omitempty"`   // the type of the error, never its message
	Partial   bool      `json:"partial,omitempty"` // the emitter samples, or dropped attributes
	Told      bool      `json:"told,omitempty"`    // the messages of a model, its parent, tell of this call: it ended before the model was called, and when it began is not known
	Args      ckpt.JSON `json:"args,omitempty"`
	Result    ckpt.JSON `json:"result,omitempty"`
	ckpt.Measures
}

// Key returns the key of the step that a call becomes. A call that messages tell of has the same key in every trace of its run.
func (s *Span) Key() string {
	if s.Told {
		return "call:" + s.ID
	}
	return "span:" + s.Trace + "/" + s.ID
}

// Counts counts what happened to the spans of a request.
type Counts struct {
	Steps      int // spans of tools that were stored; calls that messages tell of are no spans, and are not counted
	Usage      int // spans of models and agents that were stored
	Ignored    int // spans that mean nothing here, or are only structure, also roots that are stored
	Duplicates int // spans that were stored already
	Refused    int // spans that cannot be stored
	Why        string
}
