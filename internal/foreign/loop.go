package foreign

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// Loop is one run of a loop in a folder of loops.
type Loop struct {
	State    string // the file of its state, in the folder
	Events   string // the file of its events; "" if it has none
	folder   string // the name of its folder in the history; "" for a running loop
	instance string // the common beginning of its files' names if it is running
}

// The folders and file names in a folder of loops.
const (
	runningFolder = ".running"
	historyFolder = ".history"
	stateSuffix   = ".state.json"
	eventsSuffix  = ".events.jsonl"
	pidSuffix     = ".pid"
)

// FindLoops lists the runs in a folder: first those in the history, then those that are
// running. It does not read them.
func FindLoops(dir fs.FS) ([]Loop, []Problem) {
	history, err1 := fs.ReadDir(dir, historyFolder)
	running, err2 := fs.ReadDir(dir, runningFolder)
	if errors.Is(err1, fs.ErrNotExist) && errors.Is(err2, fs.ErrNotExist) {
		return nil, []Problem{refused(".", "it has neither %s nor %s: give the folder that contains them", runningFolder, historyFolder)}
	}
	var problems []Problem
	for i, err := range []error{err1, err2} {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			problems = append(problems, refused([]string{historyFolder, runningFolder}[i], "%v", cause(err)))
		}
	}
	if n := len(history) + len(running); n > MaxLoops {
		return nil, append(problems, refused(".", "it has %d entries: at most %d are read at once", n, MaxLoops))
	}
	archived, more := findArchived(dir, history)
	live, orphans := findRunning(running)
	return append(archived, live...), slices.Concat(problems, more, orphans)
}

func findArchived(dir fs.FS, entries []fs.DirEntry) (list []Loop, problems []Problem) {
	var within []Loop
	for _, e := range entries {
		place := path.Join(historyFolder, e.Name())
		info, err := fs.Stat(dir, place)
		if err != nil {
			problems = append(problems, refused(place, "%v", cause(err)))
			continue
		}
		if !info.IsDir() {
			continue
		}
		l, there := archivedLoop(dir, place)
		if there {
			list = append(list, l)
			continue
		}
		older, err := olderLoops(dir, place)
		if err != nil {
			problems = append(problems, refused(place, "%v", cause(err)))
		} else if len(older) == 0 {
			problems = append(problems, refused(place, "it has no state.json"))
		}
		within = append(within, older...)
	}
	return append(list, within...), problems
}

// archivedLoop returns the run that a folder holds.
func archivedLoop(dir fs.FS, place string) (l Loop, there bool) {
	l = Loop{State: path.Join(place, "state.json"), folder: path.Base(place)}
	if _, err := fs.Stat(dir, l.State); errors.Is(err, fs.ErrNotExist) {
		return l, false
	}
	if _, err := fs.Stat(dir, path.Join(place, "events.jsonl")); !errors.Is(err, fs.ErrNotExist) {
		l.Events = path.Join(place, "events.jsonl")
	}
	return l, true
}

// olderLoops returns the runs of a loop if the loop's name is a folder of the history,
// as in earlier versions.
func olderLoops(dir fs.FS, place string) (list []Loop, err error) {
	entries, err := fs.ReadDir(dir, place)
	for _, e := range entries {
		if l, there := archivedLoop(dir, path.Join(place, e.Name())); there && len(list) < MaxLoops {
			list = append(list, l)
		}
	}
	return list, err
}

func findRunning(entries []fs.DirEntry) (list []Loop, problems []Problem) {
	there := map[string]bool{}
	for _, e := range entries {
		there[e.Name()] = true
	}
	for _, e := range entries {
		if stem, ok := strings.CutSuffix(e.Name(), stateSuffix); ok && stem != "" {
			l := Loop{State: path.Join(runningFolder, e.Name()), instance: stem}
			if there[stem+eventsSuffix] {
				l.Events = path.Join(runningFolder, stem+eventsSuffix)
			}
			list = append(list, l)
		}
		if stem, ok := strings.CutSuffix(e.Name(), eventsSuffix); ok && !there[stem+stateSuffix] {
			problems = append(problems, refused(path.Join(runningFolder, e.Name()), "it has events of a loop, but no state of it"))
		}
		if stem, ok := strings.CutSuffix(e.Name(), pidSuffix); ok && !there[stem+stateSuffix] {
			problems = append(problems, Problem{File: path.Join(runningFolder, e.Name()),
				Message: "its loop has only started: nothing is saved yet that could be imported"})
		}
	}
	return list, problems
}

// ReadLoop reads one run. The result has one plan, or a problem that says why not.
// Damaged lines of its events are problems too.
func ReadLoop(dir fs.FS, l Loop, o Options) Result {
	var r Result
	data, err := readFile(dir, l.State, MaxState)
	if err != nil {
		r.refuse(l.State, "%v", err)
		return r
	}
	s, err := readLoopState(File{l.State, data}, l)
	if err != nil {
		r.refuse(l.State, "not the state of a loop: %v", err)
		return r
	}
	if err := o.stopped(s.top, l); err != nil {
		r.refuse(l.State, "%v", err)
		return r
	}
	var events []ckpt.NewEvent
	if l.Events != "" {
		var damaged []Problem
		if events, damaged, err = readEvents(dir, l.Events); err != nil {
			r.refuse(l.Events, "%v", err)
			return r
		}
		r.Problems = append(r.Problems, damaged...)
	}
	o.group(&r, FSMLoop, []found{s}, func(p *Plan, _ []found) error {
		p.Events, p.EventTimes = events, timesOf(events)
		if l.Events != "" {
			p.Sources = append(p.Sources, l.Events)
		}
		return finishLoop(p, s.top)
	})
	return r
}

// loopSchema is the schema of the state of a loop.
var loopSchema = schema{
	Type: oneOrMore{"object"}, Required: []string{"loop_name", "status"},
	Properties: map[string]schema{
		"loop_name":           {Type: oneOrMore{"string"}, MinLength: 1},
		"current_state":       {Type: oneOrMore{"string", "null"}},
		"status":              {Type: oneOrMore{"string"}, MinLength: 1},
		"iteration":           {Type: oneOrMore{"number", "null"}},
		"captured":            {Type: oneOrMore{"object", "null"}},
		"started_at":          {Type: oneOrMore{"string", "number", "null"}},
		"updated_at":          {Type: oneOrMore{"string", "number", "null"}},
		"continuation_prompt": {Type: oneOrMore{"string", "null"}},
		"accumulated_ms":      {Type: oneOrMore{"number", "null"}},
		"retry_counts":        {Type: oneOrMore{"object", "null"}},
		"edge_revisit_counts": {Type: oneOrMore{"object", "null"}},
		"pid":                 {Type: oneOrMore{"number", "null"}},
	},
}

func readLoopState(f File, l Loop) (found, error) {
	top, err := readObject(f.Data)
	if err != nil {
		return found{}, err
	}
	if err := loopSchema.checkObject("", top); err != nil {
		return found{}, err
	}
	if len(top.keys) == len(loopSchema.Required) {
		return found{}, errors.New("the state has loop_name and status alone, so there is nothing to go on from")
	}
	s := found{file: f, top: top, workflow: top.text("loop_name")}
	s.from = original{
		Format: FSMLoop, Workflow: cut(s.workflow, maxOriginal), Status: cut(top.text("status"), 256),
		Position: cut(top.text("current_state"), maxOriginal),
		Counter:  top.small("iteration"), ActiveSubLoop: top.small("active_sub_loop"),
		PID: top.small("pid"), AccumulatedMS: top.small("accumulated_ms"),
	}
	started, text, err := top.moment("started_at")
	if err != nil {
		return found{}, err
	}
	s.from.StartedAt, s.started = text, started
	if s.at, s.from.Time, err = top.moment("updated_at", "started_at"); err != nil {
		return found{}, err
	}
	s.run = l.name(s.workflow, started)
	s.from.Run = cut(s.run, maxOriginal)
	return s, nil
}

// name returns the name of the run: its folder in the history, or the name of its files
// if it is running. A running loop that has only its own name gets the name that its
// folder would have, because the next run of the loop uses the same files.
func (l Loop) name(loop string, started time.Time) string {
	switch {
	case l.folder != "":
		return l.folder
	case l.instance != loop || started.IsZero():
		return l.instance
	}
	return started.Format("2006-01-02T150405") + "-" + loop
}

// stopped refuses a loop that may still write its files.
func (o Options) stopped(top object, l Loop) error {
	pid, there := top.number("pid")
	if l.folder != "" || !there || o.Alive == nil || pid < 1 || pid > 1<<31-1 {
		return nil
	}
	switch top.text("status") {
	case "running", "starting":
		if o.Alive(int(pid)) {
			return fmt.Errorf("process %d still runs it: stop it first, or add --stopped if another process has that number now", int(pid))
		}
	}
	return nil
}

func finishLoop(p *Plan, top object) error {
	p.Start.Goal = p.long("goal", goalOf(top, top.object("captured")))
	p.End.ContinuationPrompt = p.long("continuation prompt", top.text("continuation_prompt"))
	var why string
	p.End.Status, why = loopStatus(top)
	if why != "" {
		p.note("%s", why)
		p.Dead = p.End.Status == ckpt.RunInterrupted
	}
	if ms, _ := top.number("accumulated_ms"); ms > 0 {
		whole := int64(math.Round(ms))
		p.Start.AccumulatedMS = &whole
	}
	if p.End.Status == ckpt.RunFailed {
		message := messageOf(top.values["error"])
		if message == "" {
			message = "the loop " + map[bool]string{true: "timed out",
				false: "failed"}[top.text("status") == "timed_out"] + " in state " + top.text("current_state")
		}
		p.End.Error = p.long("error", message)
	}
	return nil
}

// loopStatus returns the status of a loop whose process is gone. why explains it if it
// is not the loop's own.
func loopStatus(top object) (_ ckpt.RunStatus, why string) {
	switch status := top.text("status"); status {
	case "completed", "failed", "interrupted", "awaiting_continuation", "suspended", "timed_out":
		return ckpt.RunStatus(status), ""
	case "running", "starting":
		return ckpt.RunInterrupted, fmt.Sprintf("it was %s; the run is interrupted now", status)
	default:
		return ckpt.RunInterrupted, fmt.Sprintf("status %q is unknown, so the run is interrupted and can be resumed", printable(status, 64))
	}
}

// readFile reads a regular file of limited size.
func readFile(dir fs.FS, name string, most int64) ([]byte, error) {
	f, err := openRegular(dir, name, most)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("it has more than %d bytes", most)
	}
	return data, err
}

// openRegular opens a regular file. It does not open other files, because that could
// block.
func openRegular(dir fs.FS, name string, most int64) (fs.File, error) {
	info, err := fs.Stat(dir, name)
	switch {
	case err != nil:
		return nil, cause(err)
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	case info.Size() > most:
		return nil, fmt.Errorf("it has %d bytes: at most %d are read", info.Size(), most)
	}
	f, err := dir.Open(name)
	return f, cause(err)
}

// cause returns an error without the file's name, because the message names the file
// already.
func cause(err error) error {
	var e *fs.PathError
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// readEvents reads a journal with one JSON object in each line. It skips damaged lines
// and reports them.
func readEvents(dir fs.FS, name string) (events []ckpt.NewEvent, damaged []Problem, err error) {
	f, err := openRegular(dir, name, MaxJournal)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	lines := bufio.NewReaderSize(io.LimitReader(f, MaxJournal), 64<<10)
	count := 0
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return nil, nil, err
		}
		if trimmed := bytes.TrimSpace(line); len(trimmed) > 0 {
			if why := damage(trimmed); why != "" {
				if count++; count <= maxDamaged {
					damaged = append(damaged, Problem{File: name, Line: number, Message: "skipped: " + why})
				}
			} else if len(events) == maxEvents {
				return nil, nil, fmt.Errorf("it has more than %d events", maxEvents)
			} else {
				events = append(events, ckpt.NewEvent{Type: eventType(trimmed), Payload: ckpt.JSON(trimmed)})
			}
		}
		if err == io.EOF {
			break
		}
	}
	if count > maxDamaged {
		damaged = append(damaged, Problem{File: name, Message: fmt.Sprintf("skipped: %s more", plural(count-maxDamaged, "damaged line"))})
	}
	return events, damaged, nil
}

// damage returns what is wrong with a line, "" for nothing.
func damage(line []byte) string {
	if len(line) > ckpt.MaxValue {
		return fmt.Sprintf("it has %d bytes, and an event at most %d", len(line), ckpt.MaxValue)
	}
	var fault *jsontext.Error
	if err := jsontext.Check(line); errors.As(err, &fault) {
		return fmt.Sprintf("damaged at column %d: %s", fault.Column, fault.Reason)
	}
	if jsontext.TypeOf(line) != "object" {
		return "it is not a JSON object"
	}
	return ""
}
