package server

import (
	"context"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// RunStore is what the server needs of the database for runs. What is said of
// Store holds here too: one transaction each, *ckpt.Error, somebody else's is
// not_found. The bool of a write says that it is the first reply to its
// idempotency key, given again.
type RunStore interface {
	StartRun(ctx context.Context, sc ckpt.Scope, r ckpt.RunRequest) (*ckpt.Run, bool, error)
	Run(ctx context.Context, sc ckpt.Scope, run ckpt.RunRef) (*ckpt.Run, error)
	Runs(ctx context.Context, sc ckpt.Scope, f ckpt.RunFilter) (*ckpt.RunPage, error)
	Beat(ctx context.Context, sc ckpt.Scope, run ckpt.RunRef, b ckpt.Heartbeat) (*ckpt.Run, error)
	EndRun(ctx context.Context, sc ckpt.Scope, run ckpt.RunRef, r ckpt.EndRequest) (*ckpt.Run, bool, error)
	Resume(ctx context.Context, sc ckpt.Scope, r ckpt.ResumeRequest) (*ckpt.Plan, bool, error)

	BeginStep(ctx context.Context, sc ckpt.Scope, run ckpt.RunRef, r ckpt.StepRequest) (*ckpt.Step, bool, error)
	FinishStep(ctx context.Context, sc ckpt.Scope, run ckpt.RunRef, r ckpt.StepRequest) (*ckpt.Step, bool, error)
	Steps(ctx context.Context, sc ckpt.Scope, run ckpt.RunRef, f ckpt.ListFilter) (*ckpt.StepPage, error)

	BeginOperation(ctx context.Context, sc ckpt.Scope, run ckpt.RunRef, r ckpt.OperationRequest) (*ckpt.Operation, bool, error)
	EndOperation(ctx context.Context, sc ckpt.Scope, run ckpt.RunRef, r ckpt.OperationEnd) (*ckpt.OperationEnded, bool, error)
	Operations(ctx context.Context, sc ckpt.Scope, run ckpt.RunRef, f ckpt.ListFilter) (*ckpt.OperationPage, error)

	Append(ctx context.Context, sc ckpt.Scope, run ckpt.RunRef, events []ckpt.NewEvent, key string) (*ckpt.Appended, bool, error)
	// Events reads events after a sequence number, oldest first.
	Events(ctx context.Context, sc ckpt.Scope, run ckpt.RunRef, after int64, limit int) (*ckpt.EventPage, error)
	// Changed is closed when the next transaction with events is on disk. Take
	// it before reading, so that nothing slips between.
	Changed() <-chan struct{}

	Prompts(ctx context.Context, sc ckpt.Scope, f ckpt.PromptFilter) (*ckpt.PromptPage, error)
	AnswerPrompt(ctx context.Context, sc ckpt.Scope, a ckpt.PromptAnswer) (*ckpt.Prompt, bool, error)

	Drift(ctx context.Context, sc ckpt.Scope, f ckpt.DriftFilter) (*ckpt.DriftReport, error)
	Evaluate(ctx context.Context, sc ckpt.Scope, r ckpt.EvaluateRequest) (*ckpt.Evaluation, error)
	Feedback(ctx context.Context, sc ckpt.Scope, agent string) (*ckpt.DriftFeedback, error)
	Finding(ctx context.Context, sc ckpt.Scope, id string) (*ckpt.Finding, error)
	PostFinding(ctx context.Context, sc ckpt.Scope, agent string, r ckpt.FindingRequest) (*ckpt.PostedFinding, bool, error)
	Dismiss(ctx context.Context, sc ckpt.Scope, r ckpt.DismissRequest) (*ckpt.DismissedFinding, bool, error)
}
