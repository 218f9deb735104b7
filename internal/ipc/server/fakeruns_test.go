package server

import (
	"context"
	"sync"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// fakeRuns records what it is asked and returns what the test has set. Only its
// journal is real.
type fakeRuns struct {
	mu       sync.Mutex
	method   string // the last call, and its arguments
	scope    ckpt.Scope
	ref      ckpt.RunRef
	got      any
	key      string
	err      error
	replayed bool
	wait     func(context.Context)

	run   ckpt.Run
	plan  ckpt.Plan
	step  ckpt.Step
	op    ckpt.Operation
	ended ckpt.OperationEnded
	asked ckpt.Prompt

	report    ckpt.DriftReport
	posted    ckpt.PostedFinding
	dismissed ckpt.DismissedFinding

	events  []ckpt.Event
	changed chan struct{}
	reads   int
	onRead  func(context.Context) error
}

func (f *fakeRuns) note(ctx context.Context, method string, sc ckpt.Scope, ref ckpt.RunRef, got any) error {
	if f.wait != nil {
		f.wait(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.method, f.scope, f.ref, f.got = method, sc, ref, got
	return f.err
}

// called returns the last call.
func (f *fakeRuns) called() (method string, ref ckpt.RunRef, got any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.method, f.ref, f.got
}

func answerOf[T any](f *fakeRuns, v T, err error) (*T, bool, error) {
	if err != nil {
		return nil, false, err
	}
	return &v, f.replayed, nil
}

func pageOf[T any](v T, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return &v, nil
}

func (f *fakeRuns) StartRun(ctx context.Context, sc ckpt.Scope, r ckpt.RunRequest) (*ckpt.Run, bool, error) {
	return answerOf(f, f.run, f.note(ctx, "StartRun", sc, ckpt.RunRef{}, r))
}

func (f *fakeRuns) Run(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef) (*ckpt.Run, error) {
	return pageOf(f.run, f.note(ctx, "Run", sc, ref, nil))
}

func (f *fakeRuns) Runs(ctx context.Context, sc ckpt.Scope, rf ckpt.RunFilter) (*ckpt.RunPage, error) {
	return pageOf(ckpt.RunPage{Runs: []ckpt.Run{f.run}, Next: "more"}, f.note(ctx, "Runs", sc, ckpt.RunRef{}, rf))
}

func (f *fakeRuns) Beat(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, b ckpt.Heartbeat) (*ckpt.Run, error) {
	return pageOf(f.run, f.note(ctx, "Beat", sc, ref, b))
}

func (f *fakeRuns) EndRun(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, r ckpt.EndRequest) (*ckpt.Run, bool, error) {
	return answerOf(f, f.run, f.note(ctx, "EndRun", sc, ref, r))
}

func (f *fakeRuns) Resume(ctx context.Context, sc ckpt.Scope, r ckpt.ResumeRequest) (*ckpt.Plan, bool, error) {
	return answerOf(f, f.plan, f.note(ctx, "Resume", sc, ckpt.RunRef{}, r))
}

func (f *fakeRuns) BeginStep(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, r ckpt.StepRequest) (*ckpt.Step, bool, error) {
	return answerOf(f, f.step, f.note(ctx, "BeginStep", sc, ref, r))
}

func (f *fakeRuns) FinishStep(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, r ckpt.StepRequest) (*ckpt.Step, bool, error) {
	return answerOf(f, f.step, f.note(ctx, "FinishStep", sc, ref, r))
}

func (f *fakeRuns) Steps(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, lf ckpt.ListFilter) (*ckpt.StepPage, error) {
	return pageOf(ckpt.StepPage{Steps: []ckpt.Step{f.step}, Next: "more"}, f.note(ctx, "Steps", sc, ref, lf))
}

func (f *fakeRuns) BeginOperation(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, r ckpt.OperationRequest) (*ckpt.Operation, bool, error) {
	return answerOf(f, f.op, f.note(ctx, "BeginOperation", sc, ref, r))
}

func (f *fakeRuns) EndOperation(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, r ckpt.OperationEnd) (*ckpt.OperationEnded, bool, error) {
	return answerOf(f, f.ended, f.note(ctx, "EndOperation", sc, ref, r))
}

func (f *fakeRuns) ResolveOperation(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, r ckpt.OperationResolution) (*ckpt.OperationEnded, bool, error) {
	return answerOf(f, f.ended, f.note(ctx, "ResolveOperation", sc, ref, r))
}

func (f *fakeRuns) Operations(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, lf ckpt.ListFilter) (*ckpt.OperationPage, error) {
	return pageOf(ckpt.OperationPage{Operations: []ckpt.Operation{f.op}, Next: "more"}, f.note(ctx, "Operations", sc, ref, lf))
}

func (f *fakeRuns) Prompts(ctx context.Context, sc ckpt.Scope, pf ckpt.PromptFilter) (*ckpt.PromptPage, error) {
	return pageOf(ckpt.PromptPage{Prompts: []ckpt.Prompt{f.asked}, Next: "more"}, f.note(ctx, "Prompts", sc, ckpt.RunRef{}, pf))
}

func (f *fakeRuns) AskQuestion(ctx context.Context, sc ckpt.Scope, r ckpt.QuestionRequest) (*ckpt.Prompt, bool, error) {
	return answerOf(f, f.asked, f.note(ctx, "AskQuestion", sc, ckpt.RunRef{}, r))
}

func (f *fakeRuns) Prompt(ctx context.Context, sc ckpt.Scope, id string) (*ckpt.Prompt, error) {
	err := f.note(ctx, "Prompt", sc, ckpt.RunRef{}, id)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	return pageOf(f.asked, err)
}

func (f *fakeRuns) NotifyTest(ctx context.Context, sc ckpt.Scope) (*ckpt.NotifyTested, error) {
	return pageOf(ckpt.NotifyTested{ID: "n", Hooks: []string{"h"}}, f.note(ctx, "NotifyTest", sc, ckpt.RunRef{}, nil))
}

func (f *fakeRuns) EventsOf(ctx context.Context, sc ckpt.Scope, after int64, limit int) (*ckpt.OwnerEventPage, error) {
	return pageOf(ckpt.OwnerEventPage{Events: []ckpt.OwnerEvent{}}, f.note(ctx, "EventsOf", sc, ckpt.RunRef{}, [2]int64{after, int64(limit)}))
}

func (f *fakeRuns) PromptsChanged() <-chan struct{} { return nil }

func (f *fakeRuns) AnswerPrompt(ctx context.Context, sc ckpt.Scope, a ckpt.PromptAnswer) (*ckpt.Prompt, bool, error) {
	return answerOf(f, f.asked, f.note(ctx, "AnswerPrompt", sc, ckpt.RunRef{}, a))
}

func (f *fakeRuns) Append(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, events []ckpt.NewEvent, key string) (*ckpt.Appended, bool, error) {
	if err := f.note(ctx, "Append", sc, ref, events); err != nil {
		return nil, false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.key = key
	first := int64(len(f.events) + 1)
	for _, e := range events {
		f.events = append(f.events, ckpt.Event{Seq: int64(len(f.events) + 1), Type: e.Type, Payload: e.Payload})
	}
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
	return &ckpt.Appended{First: first, Last: int64(len(f.events))}, f.replayed, nil
}

func (f *fakeRuns) Events(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, after int64, limit int) (*ckpt.EventPage, error) {
	if err := f.note(ctx, "Events", sc, ref, [2]int64{after, int64(limit)}); err != nil {
		return nil, err
	}
	if f.onRead != nil {
		if err := f.onRead(ctx); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	page := &ckpt.EventPage{Events: []ckpt.Event{}}
	if after < int64(len(f.events)) {
		page.Events = f.events[after:]
	}
	if limit == 0 {
		limit = ckpt.DefaultLimit
	}
	if len(page.Events) > limit {
		page.Events = page.Events[:limit]
		page.Next = &page.Events[limit-1].Seq
	}
	return page, nil
}

func (f *fakeRuns) Changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changed == nil {
		f.changed = make(chan struct{})
	}
	return f.changed
}

func (f *fakeRuns) Drift(ctx context.Context, sc ckpt.Scope, df ckpt.DriftFilter) (*ckpt.DriftReport, error) {
	return pageOf(f.report, f.note(ctx, "Drift", sc, ckpt.RunRef{}, df))
}

func (f *fakeRuns) Evaluate(ctx context.Context, sc ckpt.Scope, r ckpt.EvaluateRequest) (*ckpt.Evaluation, error) {
	return pageOf(ckpt.Evaluation{Rows: []ckpt.EvaluatedRow{}, Warned: []ckpt.WarnedRun{}, Calibrations: []ckpt.Calibration{}}, f.note(ctx, "Evaluate", sc, ckpt.RunRef{}, r))
}

func (f *fakeRuns) Feedback(ctx context.Context, sc ckpt.Scope, agent string) (*ckpt.DriftFeedback, error) {
	return pageOf(ckpt.DriftFeedback{Agent: agent, Rules: []ckpt.RuleFeedback{}}, f.note(ctx, "Feedback", sc, ckpt.RunRef{Agent: agent}, nil))
}

func (f *fakeRuns) PostFinding(ctx context.Context, sc ckpt.Scope, agent string, r ckpt.FindingRequest) (*ckpt.PostedFinding, bool, error) {
	return answerOf(f, f.posted, f.note(ctx, "PostFinding", sc, ckpt.RunRef{Agent: agent}, r))
}

func (f *fakeRuns) Dismiss(ctx context.Context, sc ckpt.Scope, r ckpt.DismissRequest) (*ckpt.DismissedFinding, bool, error) {
	return answerOf(f, f.dismissed, f.note(ctx, "Dismiss", sc, ckpt.RunRef{}, r))
}

func (f *fakeRuns) Finding(ctx context.Context, sc ckpt.Scope, id string) (*ckpt.Finding, error) {
	return pageOf(f.posted.Finding, f.note(ctx, "Finding", sc, ckpt.RunRef{}, id))
}

// in replaces what a store says about runs.
func (f *fakeRuns) in(s Store) Store {
	s.Runs, s.Service = runsOf{f, s.Runs}, serviceOf{s.Service, f}
	s.Steps, s.Operations, s.Events, s.Prompts, s.Drift = f, f, f, f, f
	return s
}

type runsOf struct {
	*fakeRuns
	rest Runs
}

func (r runsOf) DeleteRun(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, force bool) (*ckpt.DeletedRun, error) {
	return r.rest.DeleteRun(ctx, sc, ref, force)
}

func (r runsOf) ClearRun(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef) (*ckpt.ClearedRun, error) {
	return r.rest.ClearRun(ctx, sc, ref)
}

type serviceOf struct {
	Service
	fake *fakeRuns
}

func (s serviceOf) NotifyTest(ctx context.Context, sc ckpt.Scope) (*ckpt.NotifyTested, error) {
	return s.fake.NotifyTest(ctx, sc)
}
