package driftcmd

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
)

// trace is a recorded run. Onset is the number of the step at which a fault was injected,
// nil if there was none.
type trace struct {
	ID       string      `json:"id"`
	Source   string      `json:"source"`
	Workflow string      `json:"workflow"`
	Outcome  string      `json:"outcome"`
	Onset    *int        `json:"onset"`
	Steps    []traceStep `json:"steps"`
}

type traceStep struct {
	Tool    string     `json:"tool"`
	Turn    traceTurn  `json:"turn"`
	Outcome ckpt.Ref   `json:"outcome"` // negative, or nothing
	State   ckpt.JSON  `json:"state"`   // the state that was saved after the step
	Args    ckpt.JSON  `json:"args"`
	Result  ckpt.JSON  `json:"result"`
	Error   traceError `json:"error"`
	ckpt.Measures
}

// traceTurn is written as a text or as a number.
type traceTurn string

func (t *traceTurn) UnmarshalJSON(b []byte) error {
	var text *string
	if err := json.Unmarshal(b, &text); err == nil {
		if text != nil {
			*t = traceTurn(*text)
		}
		return nil
	}
	var n json.Number
	if json.Unmarshal(b, &n) != nil {
		return fmt.Errorf("turn must be a text or a number; got %.40s", b)
	}
	*t = traceTurn(n)
	return nil
}

// traceError is written as a boolean, or as a description of the error.
type traceError struct {
	failed bool
	text   string
}

func (e *traceError) UnmarshalJSON(b []byte) error {
	switch string(b) {
	case "null", "false", `""`:
		return nil
	case "true":
		e.failed = true
		return nil
	}
	e.failed = true
	if json.Unmarshal(b, &e.text) != nil {
		return fmt.Errorf("error must be true, false, or a text; got %.40s", b)
	}
	return nil
}

// traceStart is the start time of every recorded run: recordings have no clock.
var traceStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// step returns the step as an agent would have sent it. It advances at by the duration of
// the step.
func (s *traceStep) step(number int, at *time.Time) ckpt.Step {
	took := time.Second
	if s.DurationMS != nil {
		took = time.Duration(*s.DurationMS) * time.Millisecond
	}
	step := ckpt.Step{
		Key: strconv.Itoa(number), Name: s.Tool, Args: s.Args, Result: s.Result, Status: ckpt.StepSucceeded, Attempt: 1,
		Error: ckpt.Ref(s.Error.text), StartedAt: ckpt.At(*at), EndedAt: ckpt.At(at.Add(took)), Turn: ckpt.Ref(s.Turn),
		Outcome: s.Outcome, Measures: s.Measures,
	}
	if s.Error.failed {
		step.Status = ckpt.StepFailed
	}
	*at = at.Add(took)
	return step
}

// good are the outcomes of runs that ended well.
var good = []string{"passed", "healthy", "good", "completed", "succeeded"}

// recorded returns the run in the form for the detectors.
func (t *trace) recorded(ctx context.Context, watch observer.Watcher, p *ckpt.Policy) *observer.RecordedRun {
	r := &observer.RecordedRun{
		ID: t.ID, Source: t.Source, Workflow: t.Workflow, Outcome: t.Outcome, Good: slices.Contains(good, t.Outcome),
		Onset: t.Onset, StartedAt: traceStart,
	}
	at, seq, last := traceStart, int64(0), []byte(nil)
	for i := range t.Steps {
		s := &t.Steps[i]
		r.Raw = append(r.Raw, s.step(i, &at))
		r.Steps = append(r.Steps, observer.StepPrint{AfterSeq: seq})
		if len(s.State) == 0 || string(s.State) == "null" {
			continue
		}
		seq++
		print, _ := watch.State(ctx, p, observer.RuleRun{Agent: t.Source, Run: t.ID}, s.State, last,
			ckpt.ContentTypeJSON) // the error can only be the context's
		print.ID, print.Seq, print.At, print.Kind = strconv.FormatInt(seq, 10), seq, at, ckpt.KindRoutine
		r.States, last = append(r.States, print), s.State
	}
	return r
}

// maxTraceLine is the maximum length of a recorded run.
const maxTraceLine = 256 << 20

// eachTrace reads the runs of a file. read counts the bytes of the file so far; size is 0
// if it is unknown.
func eachTrace(stdin io.Reader, path string, visit func(t *trace, read, size int64) error) error {
	in, size, err := openTraces(stdin, path)
	if err != nil {
		return err
	}
	defer in.Close()
	counted := &countingReader{in: in}
	plain, err := unzipped(counted)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	lines := bufio.NewScanner(plain)
	lines.Buffer(make([]byte, 0, 1<<20), maxTraceLine)
	for number := 1; lines.Scan(); number++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		t, err := parseTrace(line)
		if err != nil {
			return fmt.Errorf("%s:%d: %w", path, number, err)
		}
		if err := visit(t, counted.n, size); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func openTraces(stdin io.Reader, path string) (io.ReadCloser, int64, error) {
	if path == "-" {
		return io.NopCloser(stdin), 0, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil || info.IsDir() {
		f.Close()
		if err == nil {
			err = fmt.Errorf("%s is a folder: name the files in it", path)
		}
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// unzipped checks the first bytes, not the name.
func unzipped(in io.Reader) (io.Reader, error) {
	b := bufio.NewReaderSize(in, 64<<10)
	if magic, _ := b.Peek(2); !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return b, nil
	}
	return gzip.NewReader(b)
}

func parseTrace(line []byte) (*trace, error) {
	var t trace
	if err := json.Unmarshal(line, &t); err != nil {
		return nil, fmt.Errorf("this is not a run: %w", err)
	}
	switch {
	case t.Source == "" || t.Outcome == "":
		return nil, errors.New("this is not a run: it needs a source and an outcome")
	case t.Onset != nil && *t.Onset < 0:
		return nil, fmt.Errorf("onset must be the number of a step, from 0; got %d", *t.Onset)
	}
	return &t, nil
}

type countingReader struct {
	in io.Reader
	n  int64
}

func (r *countingReader) Read(b []byte) (int, error) {
	n, err := r.in.Read(b)
	r.n += int64(n)
	return n, err
}
