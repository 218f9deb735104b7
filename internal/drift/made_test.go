package drift

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// start is the time when the made-up runs begin.
var start = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

// made is a made-up run. Its steps go through the print and the watch as in the
// store.
type made struct {
	t      testing.TB
	watch  observer.Watcher
	policy ckpt.Policy
	run    observer.RunWatch
	now    time.Time
	prints []observer.StepPrint
	states []observer.StatePrint
	last   []byte // the last state
	seq    int64
	found  []sighting

	dismissed map[string]time.Time
	open      []ckpt.Finding // that a watch is told of when it begins
	entered   []string
	goal      string // the first one

	progress   *float64
	progressAt time.Time // when it last grew
}

// sighting is a finding and the number of the step, from 0, that made it.
type sighting struct {
	step int
	observer.Found
}

func newMade(t testing.TB, change ...func(*ckpt.Policy)) *made {
	t.Helper()
	m := &made{t: t, watch: New(), policy: ckpt.DefaultPolicy(), now: start}
	for _, c := range change {
		c(&m.policy)
	}
	if err := wellformed.Policy(m.policy); err != nil {
		t.Fatal(err)
	}
	if err := m.watch.Check(&m.policy); err != nil {
		t.Fatal(err)
	}
	m.run = m.watch.Watch(&m.policy, m.past())
	return m
}

func (m *made) past() observer.RunPast {
	var routine, refresh time.Time
	for _, s := range m.states {
		if s.Kind == ckpt.KindRecovery {
			refresh = s.At
		} else {
			routine = s.At
		}
	}
	return observer.RunPast{LastRoutine: routine, LastRefresh: refresh, Open: m.open, Entered: m.entered, Goal: m.goal, Progress: m.progress,
		ProgressAt: m.progressAt, StartedAt: start, Steps: m.prints[max(0, len(m.prints)-observer.MaxPastSteps):], TotalSteps: int64(len(m.prints)), Dismissed: m.dismissed, States: m.states[max(0, len(m.states)-observer.MaxPastStates):]}
}

// restart discards the watch and builds it again from what is stored.
func (m *made) restart() { m.run = m.watch.Watch(&m.policy, m.past()) }

// dismiss dismisses the findings of a rule.
func (m *made) dismiss(rule string) {
	if m.dismissed == nil {
		m.dismissed = map[string]time.Time{}
	}
	m.now = m.now.Add(time.Second)
	m.dismissed[rule] = m.now
	m.run.Forget(rule)
}

// step records a step. args and result can be any JSON value. With an error
// text the step fails.
func (m *made) step(tool string, args, result any, failure string, change ...func(*ckpt.Step)) []observer.Found {
	m.t.Helper()
	m.now = m.now.Add(time.Second)
	s := ckpt.Step{
		Key: "s" + strconv.Itoa(len(m.prints)), Name: tool, Args: asJSON(m.t, args), Result: asJSON(m.t, result),
		Error: ckpt.Ref(failure), Status: ckpt.StepSucceeded, Attempt: 1, EndedAt: ckpt.At(m.now),
	}
	if failure != "" {
		s.Status = ckpt.StepFailed
	}
	for _, c := range change {
		c(&s)
	}
	print, _ := m.watch.Step(context.Background(), &m.policy, observer.RuleRun{Agent: "a", Run: "main", Measures: m.run.Measures()}, &s)
	print.AfterSeq = m.seq
	found := m.run.Step(print)
	print.Broken = nil
	m.prints = append(m.prints, print)
	m.note(found)
	return found
}

// save records a checkpoint, a routine one unless a kind is given.
func (m *made) save(state any, kind ...ckpt.Kind) []observer.Found {
	m.t.Helper()
	m.now = m.now.Add(time.Second)
	m.seq++
	body := asJSON(m.t, state)
	print, _ := m.watch.State(context.Background(), &m.policy, observer.RuleRun{Agent: "a", Run: "main", Measures: m.run.Measures()}, body, m.last, ckpt.ContentTypeJSON)
	print.ID, print.Seq, print.At, print.Kind = "c"+strconv.FormatInt(m.seq, 10), m.seq, m.now, ckpt.KindRoutine
	if len(kind) > 0 {
		print.Kind = kind[0]
	}
	found := m.run.State(print)
	print.Broken = nil
	m.states, m.last = append(m.states, print), body
	m.note(found)
	return found
}

// beat declares progress, or nothing.
func (m *made) beat(progress *float64) {
	if progress != nil {
		if m.progress == nil || *progress > *m.progress {
			m.progressAt = m.now
		}
		m.progress = progress
	}
	m.note(m.run.Beat(m.now, progress))
}

// enter records that a loop entered a state.
func (m *made) enter(state string) {
	m.entered = append(m.entered, state)
	m.note(m.run.Enter(m.now, state, nil))
}

// declare declares a goal.
func (m *made) declare(goal string) {
	if m.goal == "" {
		m.goal = goal
	}
	m.note(m.run.Goal(m.now, goal, false))
}

func (m *made) note(found []observer.Found) {
	for _, f := range found {
		m.found = append(m.found, sighting{len(m.prints) - 1, f})
	}
}

func asJSON(t testing.TB, v any) ckpt.JSON {
	if v == nil {
		return nil
	}
	if raw, ok := v.(json.RawMessage); ok {
		return ckpt.JSON(raw)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// first returns the number of the first step at which a rule fired with at
// least this severity, or -1 for never.
func (m *made) first(rule string, severity ckpt.Severity) int {
	for _, f := range m.found {
		if f.Rule == rule && f.Severity.Rank() >= severity.Rank() {
			return f.step
		}
	}
	return -1
}

func (m *made) expect(rule string, severity ckpt.Severity, at int) {
	m.t.Helper()
	if got := m.first(rule, severity); got != at {
		m.t.Errorf("%s fired at %s at step %d, not %d; all: %s", rule, severity, got, at, m.all())
	}
}

// worst returns the severity of the worst finding.
func (m *made) worst() (worst ckpt.Severity) {
	for _, f := range m.found {
		if f.Severity.Rank() > worst.Rank() {
			worst = f.Severity
		}
	}
	return worst
}

func (m *made) expectNone() {
	m.t.Helper()
	if len(m.found) > 0 {
		m.t.Errorf("there are findings: %s", m.all())
	}
}

func (m *made) all() string {
	var list []string
	for _, f := range m.found {
		list = append(list, fmt.Sprintf("%d: %s %s", f.step, f.Rule, f.Severity))
	}
	return strings.Join(list, ", ")
}

// broken returns what a watch finds wrong with a single state.
func broken(w observer.Watcher, p *ckpt.Policy, state, previous []byte, contentType string) []observer.Found {
	print, _ := w.State(context.Background(), p, observer.RuleRun{}, state, previous, contentType)
	return print.Broken
}
