package foreign

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// Format is a format that this package reads.
type Format string

// The formats.
const (
	WorkflowSnapshot    Format = "workflow-snapshot"
	FSMLoop             Format = "fsm-loop"
	StatementCheckpoint Format = "statement-checkpoint"
)

// Limits of what is read. The daemon has limits of its own.
const (
	MaxState    = 64 << 20  // one foreign state: what a daemon accepts by default
	MaxJournal  = 256 << 20 // the events of one run
	MaxLoops    = 100_000   // of one folder
	maxProgram  = 160 << 10 // a program as JSON in ASCII, which is sent in a header
	maxEvents   = 1 << 20   // of one run
	maxOriginal = 1024      // bytes of a foreign name or value in metadata
	maxDamaged  = 20        // the most lines of one file that are reported one by one
)

// The labels of an imported run. Its checkpoints have the first of them.
const (
	LabelImported = "imported"      // the format
	LabelDigest   = "import_digest" // a digest of what was imported, so that a second import recognizes it
	labelTime     = "original_time"
	labelStatus   = "original_status"
)

// Options are what the plans depend on in addition to the files.
type Options struct {
	Agent string // replaces the name from the files
	Owner string // owner of the agents: ids are made from it, so that two users can import the same file
	// Alive reports whether a process with this number is alive. A loop that such a
	// process still runs is not imported. nil means that none is alive.
	Alive func(pid int) bool
}

// File is a file that was read.
type File struct {
	Name string
	Data []byte
}

// Problem is something that was not imported, and the reason.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Message string `json:"message"`
	Refused bool   `json:"refused"` // a whole file or run is left out, not only a line
}

func (p Problem) String() string {
	if p.Line > 0 {
		return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Message)
	}
	return p.File + ": " + p.Message
}

// refused makes the problem for a file that is left out.
func refused(file, format string, args ...any) Problem {
	return Problem{File: file, Message: fmt.Sprintf(format, args...), Refused: true}
}

// Plan is one run to import: see Export.
type Plan struct {
	Format  Format
	Agent   string
	Run     string
	Digest  string   // of everything below
	Sources []string // the files, in the order of the saves
	Saves   []ckpt.SaveRequest
	Start   ckpt.RunRequest
	Steps   []ckpt.StepRequest
	Events  []ckpt.NewEvent
	End     ckpt.EndRequest

	// The times from the files. A zero time means that it is not known.
	Started    time.Time
	Times      []time.Time // of each save
	StepTimes  []Span      // of each step
	EventTimes []time.Time // of each event
	Dead       bool        // the process ended without ending the run

	Notes []string // what could not be imported as it was; the states have it
}

// Span is the time during which something was done.
type Span struct{ Begin, End time.Time }

// Result is what was read from some files.
type Result struct {
	Plans    []Plan
	Problems []Problem
}

func (r *Result) refuse(file, format string, args ...any) {
	r.Problems = append(r.Problems, refused(file, format, args...))
}

func (p *Plan) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}

// finish computes the digest, and checks everything that will be sent, so that the
// daemon refuses nothing halfway.
func (p *Plan) finish() error {
	h := newDigest(string(p.Format), p.Agent, p.Run)
	for i := range p.Saves {
		h.add(p.Saves[i].ID)
	}
	for _, part := range []any{p.Steps, &p.Start, &p.End} {
		text, err := json.Marshal(part)
		if err != nil {
			return err
		}
		h.add(string(text))
	}
	for _, e := range p.Events {
		h.add(e.Type)
		h.add(string(e.Payload))
	}
	p.Digest = hex.EncodeToString(h.sum()[:16])
	none := ckpt.Duration(0)
	p.Start.Agent, p.Start.Run = p.Agent, p.Run
	p.Start.HeartbeatTimeout, p.Start.ProgressTimeout = &none, &none // no owner will send heartbeats for it
	p.Start.Labels = ckpt.Labels{LabelImported: string(p.Format), LabelDigest: p.Digest}
	return p.check()
}

func (p *Plan) check() error {
	for i := range p.Saves {
		if err := wellformed.Save(&p.Saves[i]); err != nil {
			return err
		}
	}
	if err := p.Start.Check(); err != nil {
		return err
	}
	for i := range p.Steps {
		if err := wellformed.Step(&p.Steps[i], false); err != nil {
			return err
		}
	}
	for i := range p.Events {
		if err := wellformed.Events(p.Events[i : i+1]); err != nil {
			return err
		}
	}
	return wellformed.RunEnd(&p.End)
}

// original is what a checkpoint's metadata say about its origin.
type original struct {
	Format        Format          `json:"format"`
	Version       json.RawMessage `json:"version,omitempty"`
	Workflow      string          `json:"workflow,omitempty"`
	Run           string          `json:"run,omitempty"`
	Checkpoint    string          `json:"checkpoint,omitempty"`
	Status        string          `json:"status,omitempty"`
	StartedAt     string          `json:"started_at,omitempty"`
	Time          string          `json:"time,omitempty"` // as it was written
	Position      string          `json:"position,omitempty"`
	Counter       json.RawMessage `json:"counter,omitempty"`
	ActiveSubLoop json.RawMessage `json:"active_sub_loop,omitempty"`
	PID           json.RawMessage `json:"pid,omitempty"`
	AccumulatedMS json.RawMessage `json:"accumulated_ms,omitempty"`
}

// save makes the checkpoint of one foreign state.
func (o Options) save(p *Plan, state []byte, at time.Time, from original) (ckpt.SaveRequest, error) {
	metadata, err := json.Marshal(map[string]original{"original": from})
	if err != nil {
		return ckpt.SaveRequest{}, err
	}
	labels := ckpt.Labels{LabelImported: string(p.Format)}
	if from.Status != "" {
		labels[labelStatus] = printable(from.Status, ckpt.MaxLabelValue)
	}
	if !at.IsZero() {
		labels[labelTime] = ckpt.At(at).String()
	}
	return ckpt.SaveRequest{
		ID:          checkpointID(at, o.Owner, p, state),
		Agent:       p.Agent,
		Run:         p.Run,
		Kind:        ckpt.KindRoutine,
		Labels:      labels,
		Metadata:    metadata,
		ContentType: ckpt.ContentTypeJSON,
		State:       state,
	}, nil
}

// checkpointID returns a UUID of version 7 with the original time. Its other bits are a
// hash of the state and of its owner, agent and run.
func checkpointID(at time.Time, owner string, p *Plan, state []byte) string {
	h := newDigest(string(p.Format), owner, p.Agent, p.Run)
	h.add(string(state))
	id := h.sum()
	ms := min(max(at.UnixMilli(), 0), 1<<48-1)
	if at.IsZero() {
		ms = 0
	}
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	text := hex.EncodeToString(id[:16])
	return strings.Join([]string{text[:8], text[8:12], text[12:16], text[16:20], text[20:]}, "-")
}

// digest hashes texts so that two different lists of texts never give the same input.
type digest struct{ h hash.Hash }

func newDigest(texts ...string) digest {
	d := digest{sha256.New()}
	for _, s := range texts {
		d.add(s)
	}
	return d
}

func (d digest) add(s string) {
	d.h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s))))
	d.h.Write([]byte(s))
}

func (d digest) sum() []byte { return d.h.Sum(nil) }
