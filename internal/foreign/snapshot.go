package foreign

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// Snapshots reads workflow snapshots, one in each file. The snapshots of one run become
// its checkpoints in the order of their timestamps. Steps, events and the end come from
// the last one.
func Snapshots(files []File, o Options) Result {
	var r Result
	var list []found
	for _, f := range unwrapped(&r, files) {
		s, err := readSnapshot(f.Data)
		if err != nil {
			r.refuse(f.Name, "not a workflow snapshot: %v", err)
			continue
		}
		s.file = f
		list = append(list, s)
	}
	o.group(&r, WorkflowSnapshot, list, finishSnapshot)
	return r
}

// unwrapped returns the snapshots in files. A file can hold a snapshot, a record of a
// snapshot manager's store ({runId, workflowId, snapshot}), a list of either, or a list
// of what the manager exchanges ({runId, data}). A snapshot in a record is an object,
// or a text that contains one.
func unwrapped(r *Result, files []File) (list []File) {
	for _, f := range files {
		items, isList := listOf(f.Data)
		if !isList || jsontext.Check(f.Data) != nil {
			list = append(list, unwrap(r, f)...)
			continue
		}
		if len(items) == 0 {
			r.refuse(f.Name, "it is a list with no snapshot in it")
		}
		for i, item := range items {
			list = append(list, unwrap(r, File{fmt.Sprintf("%s[%d]", f.Name, i), item})...)
		}
	}
	return list
}

func unwrap(r *Result, f File) []File {
	if len(f.Data) > MaxState || jsontext.Check(f.Data) != nil {
		return []File{f} // readSnapshot reports what is wrong
	}
	record, _ := objectOf(f.Data)
	inner := record.value("snapshot", "data")
	if inner == nil || record.has("stepResults") {
		return []File{f}
	}
	if text, ok := textOf(inner); ok {
		inner = []byte(text)
	}
	if jsontext.Check(inner) != nil {
		r.refuse(f.Name, "its snapshot is not JSON")
		return nil
	}
	of, _ := objectOf(inner)
	for _, name := range []string{"runId", "workflowId"} {
		if outer := record.text(name); outer != "" && of.text(name) != outer {
			r.refuse(f.Name, "it is a record of the %s %q, but its snapshot is of %q", name, printable(outer, 64), printable(of.text(name), 64))
			return nil
		}
	}
	return []File{{f.Name, inner}}
}

func readSnapshot(data []byte) (found, error) {
	top, err := readObject(data)
	if err != nil {
		return found{}, err
	}
	if err := snapshotSchema.checkObject("", top); err != nil {
		return found{}, err
	}
	s := found{top: top, workflow: top.text("workflowId"), run: top.text("runId")}
	s.from = original{
		Format: WorkflowSnapshot, Version: top.small("version"), Workflow: cut(s.workflow, maxOriginal),
		Run: cut(s.run, maxOriginal), Status: cut(top.text("status"), 256),
	}
	s.at, s.from.Time, err = top.moment("timestamp")
	return s, err
}

// finishSnapshot adds what a run has in addition to its states.
func finishSnapshot(p *Plan, list []found) error {
	s := list[len(list)-1].top
	p.Start.Goal = p.long("goal", goalOf(s, s.object("executionContext")))
	p.snapshotSteps(s)
	p.snapshotEvents(s)
	var why string
	p.End.Status, why = snapshotStatus(s.text("status"))
	if why != "" {
		p.note("%s", why)
		p.Dead = p.End.Status == ckpt.RunInterrupted
	}
	p.End.ContinuationPrompt = p.long("continuation prompt", s.text("continuation_prompt", "continuationPrompt"))
	if message := messageOf(s.values["error"]); message != "" {
		p.End.Error = p.long("error", message)
	} else if p.End.Status == ckpt.RunFailed {
		p.End.Error = p.long("error", "the workflow ended as "+s.text("status"))
	}
	p.End.Result = p.bounded("result of the run", s.value("result"))
	return nil
}

func goalOf(places ...object) string {
	for _, o := range places {
		if goal := o.text("goal"); goal != "" {
			return goal
		}
	}
	return ""
}

// bounded returns a value that is small enough for the daemon to keep beside the state.
func (p *Plan) bounded(what string, value json.RawMessage) ckpt.JSON {
	if len(value) > ckpt.MaxValue {
		p.note("the %s has %d bytes and is left out; the state has it", what, len(value))
		return nil
	}
	return ckpt.JSON(value)
}

// snapshotStatus returns the status of a run whose workflow no longer runs. why
// explains it if it is not the workflow's own.
func snapshotStatus(status string) (_ ckpt.RunStatus, why string) {
	switch strings.ToLower(status) {
	case "success", "succeeded", "completed", "complete", "done", "finished":
		return ckpt.RunCompleted, ""
	case "failed", "failure", "error", "errored":
		return ckpt.RunFailed, ""
	case "canceled", "cancelled", "aborted", "terminated":
		return ckpt.RunFailed, "it was " + strings.ToLower(status) + ", which is failed here"
	case "suspended", "paused", "waiting", "sleeping":
		return ckpt.RunSuspended, ""
	case "awaiting_continuation":
		return ckpt.RunAwaitingContinuation, ""
	case "interrupted":
		return ckpt.RunInterrupted, ""
	case "running", "pending", "starting", "started", "active", "initial", "resumed", "timed_out", "timedout", "timeout":
		return ckpt.RunInterrupted, "it was " + strings.ToLower(status) + "; the run is interrupted now"
	}
	return ckpt.RunInterrupted, fmt.Sprintf("status %q is unknown, so the run is interrupted and can be resumed", printable(status, 64))
}

// messageOf returns the message of an error.
func messageOf(raw json.RawMessage) string {
	if s, ok := textOf(raw); ok {
		return s
	}
	o, ok := objectOf(raw)
	switch {
	case !ok:
		return ""
	case o.text("message") != "":
		return o.text("message")
	}
	return string(raw)
}

// snapshotStep is one entry of stepResults.
type snapshotStep struct {
	id    string
	value json.RawMessage
}

// snapshotSteps takes the steps, first in the order of the execution path as far as it
// names them, then in the order of stepResults.
func (p *Plan) snapshotSteps(s object) {
	steps := entries(s.values["stepResults"])
	byID := map[string][]snapshotStep{}
	for _, step := range steps {
		byID[step.id] = append(byID[step.id], step)
	}
	sorted := make([]snapshotStep, 0, len(steps))
	for _, id := range pathNames(s.values["executionPath"]) {
		sorted = append(sorted, byID[id]...)
		delete(byID, id)
	}
	for _, step := range steps {
		if _, left := byID[step.id]; left {
			sorted = append(sorted, step)
		}
	}
	p.takeSteps(sorted)
}

// takeSteps gives each occurrence of a repeated step its own key.
func (p *Plan) takeSteps(steps []snapshotStep) {
	times := map[string]int{}
	left := map[string]int{}
	for _, s := range steps {
		r, ok := p.step(s, left)
		if !ok {
			continue
		}
		r.Key = key(s.id)
		times[r.Key]++
		for n := times[r.Key]; n > 1; n = times[r.Key] {
			r.Key = key(fmt.Sprintf("%s#%d", s.id, n))
			times[r.Key]++
		}
		p.Steps = append(p.Steps, r)
		p.StepTimes = append(p.StepTimes, spanOf(s.value))
	}
	var others []string
	for _, status := range []string{"suspended", "waiting", "pending", "skipped"} {
		if n := left[status]; n > 0 {
			others = append(others, fmt.Sprintf("%d %s", n, status))
		}
	}
	if len(others) > 0 {
		p.note("steps that have no end and were not running are only in the state: %s", strings.Join(others, ", "))
	}
}

// pathNames returns the steps that an execution path names, "" for an entry without a
// name. A path can also have numbers, or lists.
func pathNames(raw json.RawMessage) (names []string) {
	list, _ := listOf(raw)
	for _, item := range list {
		if name, ok := textOf(item); ok {
			names = append(names, name)
		} else if o, ok := objectOf(item); ok {
			names = append(names, stepName(o))
		} else {
			names = append(names, pathNames(item)...)
		}
	}
	return names
}

func stepName(o object) string { return o.text("stepId", "step_id", "id", "key", "step", "name") }

// entries lists step results. They can be an object by step id, a list of results that
// name their step, or a list of pairs, which is how JavaScript writes a map.
func entries(raw json.RawMessage) (steps []snapshotStep) {
	if o, ok := objectOf(raw); ok {
		for _, id := range o.keys {
			steps = append(steps, attempts(id, o.values[id])...)
		}
		return steps
	}
	list, _ := listOf(raw)
	for i, item := range list {
		id := fmt.Sprintf("step-%d", i+1)
		if pair, ok := listOf(item); ok && len(pair) == 2 {
			if name, ok := textOf(pair[0]); ok && name != "" {
				steps = append(steps, attempts(name, pair[1])...)
				continue
			}
		}
		if o, ok := objectOf(item); ok && stepName(o) != "" {
			id = stepName(o)
		}
		steps = append(steps, snapshotStep{id, item})
	}
	return steps
}

// attempts returns the results of one step. There are several if the value is a list in
// which each item has a status: then the step ran once for each of several things.
func attempts(id string, raw json.RawMessage) (steps []snapshotStep) {
	list, _ := listOf(raw)
	for _, item := range list {
		if o, ok := objectOf(item); !ok || o.text("status") == "" {
			return []snapshotStep{{id, raw}}
		}
		steps = append(steps, snapshotStep{id, item})
	}
	if len(steps) == 0 {
		return []snapshotStep{{id, raw}}
	}
	return steps
}

// step makes a complete record from a result. A step that was running becomes a started
// step; the end of the run will interrupt it.
func (p *Plan) step(s snapshotStep, left map[string]int) (ckpt.StepRequest, bool) {
	r := ckpt.StepRequest{Name: key(s.id), Status: ckpt.StepSucceeded}
	o, isObject := objectOf(s.value)
	if !isObject || o.text("status") == "" { // the value itself is the result
		r.Result = p.bounded("result of step "+r.Name, s.value)
		return r, true
	}
	r.Args = p.bounded("input of step "+r.Name, o.value("payload", "input", "args"))
	switch strings.ToLower(o.text("status")) {
	case "success", "succeeded", "completed", "complete", "done", "finished":
		r.Result = p.bounded("result of step "+r.Name, o.value("output", "result", "value"))
	case "failed", "failure", "error", "errored", "canceled", "cancelled", "aborted":
		r.Status = ckpt.StepFailed
		r.Error = p.long("error of step "+r.Name, messageOf(o.values["error"]))
		r.Result = p.bounded("result of step "+r.Name, o.value("output", "result", "value"))
	case "suspended", "paused":
		left["suspended"]++
		return r, false
	case "waiting", "sleeping":
		left["waiting"]++
		return r, false
	case "pending", "queued", "idle":
		left["pending"]++
		return r, false
	case "skipped":
		left["skipped"]++
		return r, false
	default:
		r.Status = ckpt.StepStarted
		return r, true
	}
	if took, ok := duration(o); ok {
		r.DurationMS = &took
	}
	return r, true
}

// span returns when a step began and ended, as far as its result says.
func span(o object) (s Span) {
	s.Begin, _, _ = o.moment("startedAt", "started_at")
	s.End, _, _ = o.moment("endedAt", "ended_at", "completedAt", "finishedAt")
	return s
}

func spanOf(raw json.RawMessage) Span {
	o, _ := objectOf(raw)
	return span(o)
}

func duration(o object) (ms int64, ok bool) {
	s := span(o)
	if s.Begin.IsZero() || s.End.IsZero() {
		return 0, false
	}
	ms = s.End.Sub(s.Begin).Milliseconds()
	return ms, ms >= 0 && ms < math.MaxInt32*1000
}

// eventTime returns the time of an event, as far as the event says.
func eventTime(raw []byte) time.Time {
	o, _ := objectOf(raw)
	at, _, _ := o.moment("ts", "timestamp", "time", "at", "created_at", "createdAt")
	return at
}

func timesOf(events []ckpt.NewEvent) []time.Time {
	times := make([]time.Time, len(events))
	for i := range events {
		times[i] = eventTime(events[i].Payload)
	}
	return times
}

func (p *Plan) snapshotEvents(s object) {
	list, _ := listOf(s.values["events"])
	for i, raw := range list {
		if len(raw) > ckpt.MaxValue {
			p.note("event %d has %d bytes and is left out; the state has it", i+1, len(raw))
			continue
		}
		p.EventTimes = append(p.EventTimes, eventTime(raw))
		p.Events = append(p.Events, ckpt.NewEvent{Type: eventType(raw), Payload: ckpt.JSON(raw)})
	}
}

// eventType returns the type that an event gives itself.
func eventType(raw []byte) string {
	if o, ok := objectOf(raw); ok {
		if name := o.text("event", "type", "event_type", "eventType", "kind", "name"); name != "" {
			return key(name)
		}
	}
	return "event"
}
