package server

import (
	"context"
	"io"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// Store is what the server needs of the database. Every method is one
// transaction, checks what the scope may see, and answers errors as
// *ckpt.Error. A name or id of somebody else is answered as not_found.
//
// A method with a key argument is a POST: where key is not "", the same key
// with the same request answers the first reply and replayed true, and with
// another request idempotency_mismatch.
type Store interface {
	Save(ctx context.Context, sc ckpt.Scope, r *ckpt.SaveRequest) (*ckpt.Saved, error)
	// Checkpoint reads one; the hash of its state is checked where state is asked for.
	Checkpoint(ctx context.Context, sc ckpt.Scope, id string, state bool) (*ckpt.Checkpoint, error)
	// Memory is room for a state that is to be saved, as a SaveRequest's State
	// with Lent set.
	Memory(size int) []byte
	// Base is the state of a checkpoint of an agent and its hash, for a change to
	// it. Nobody may write to the state, nor read it once it was released, which
	// must be done where there is no error.
	Base(ctx context.Context, sc ckpt.Scope, agent, id string) (state []byte, sha256 string, release func(), err error)
	Checkpoints(ctx context.Context, sc ckpt.Scope, f ckpt.CheckpointFilter) (*ckpt.CheckpointPage, error)
	Latest(ctx context.Context, sc ckpt.Scope, f ckpt.CheckpointFilter, state bool) (*ckpt.Checkpoint, error)
	Patch(ctx context.Context, sc ckpt.Scope, id string, p ckpt.CheckpointPatch) (*ckpt.Checkpoint, error)
	Delete(ctx context.Context, sc ckpt.Scope, id string) (*ckpt.Removal, error)
	Restore(ctx context.Context, sc ckpt.Scope, r ckpt.RestoreRequest) (c *ckpt.Checkpoint, replayed bool, err error)

	// Files.

	MissingContents(ctx context.Context, sc ckpt.Scope, agent string, sums []string) (*ckpt.ContentsMissing, error)
	// PutContents stores what next answers, io.EOF after the last. Those before an
	// error may be stored.
	PutContents(ctx context.Context, sc ckpt.Scope, agent string, next func() (*ckpt.FileContent, error)) (*ckpt.ContentsStored, error)
	Content(ctx context.Context, sc ckpt.Scope, agent, sum string) ([]byte, error)
	PutTree(ctx context.Context, sc ckpt.Scope, r ckpt.TreeRequest) (*ckpt.TreeStored, error)
	Attach(ctx context.Context, sc ckpt.Scope, r ckpt.AttachRequest) (c *ckpt.Checkpoint, replayed bool, err error)
	FilesOf(ctx context.Context, sc ckpt.Scope, f ckpt.FilesFilter) (*ckpt.FilesPage, error)
	DiffFiles(ctx context.Context, sc ckpt.Scope, f ckpt.FilesDiffFilter) (*ckpt.FilesDiff, error)

	Agents(ctx context.Context, sc ckpt.Scope, f ckpt.AgentFilter) (*ckpt.AgentPage, error)
	Policy(ctx context.Context, sc ckpt.Scope, agent string) (*ckpt.Policy, error)
	// SetOwnPolicy takes a JSON object; what it leaves out the agent does not set.
	// match are tags of which the policy that is replaced must have one; none is any.
	SetOwnPolicy(ctx context.Context, sc ckpt.Scope, agent string, own []byte, match ...string) (*ckpt.Policy, error)
	// PolicyTag names what an agent sets itself.
	PolicyTag(ctx context.Context, sc ckpt.Scope, agent string) (string, error)
	// PolicyLayers is with ckpt.AllAgents that of the owner's agents that set nothing.
	PolicyLayers(ctx context.Context, sc ckpt.Scope, agent string) (*ckpt.PolicyLayers, error)
	SetOwnerPolicy(ctx context.Context, sc ckpt.Scope, set []byte) (*ckpt.OwnerPolicySet, error)
	Erase(ctx context.Context, sc ckpt.Scope, agent string) (*ckpt.Erased, error)
	// Chown gives an owner's agents to another owner.
	Chown(ctx context.Context, sc ckpt.Scope, r ckpt.ChownRequest, key string) (done *ckpt.Chowned, replayed bool, err error)
	Prune(ctx context.Context, sc ckpt.Scope, r ckpt.PruneRequest, key string) (rep *ckpt.PruneReport, replayed bool, err error)

	DeleteRun(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, force bool) (*ckpt.DeletedRun, error)
	ClearRun(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef) (*ckpt.ClearedRun, error)
	// ExportAgents writes NDJSON; an error after the first byte leaves the text
	// without its last line, which Import refuses.
	ExportAgents(ctx context.Context, sc ckpt.Scope, r ckpt.ExportRequest, w io.Writer) error
	Import(ctx context.Context, sc ckpt.Scope, r ckpt.ImportRequest, body io.Reader) (*ckpt.ImportReport, error)

	Audit(ctx context.Context, sc ckpt.Scope, f ckpt.AuditFilter) (*ckpt.AuditPage, error)
	// ArchiveAudit lets rows of the log go that lie in a file.
	ArchiveAudit(ctx context.Context, sc ckpt.Scope, r ckpt.AuditArchive) (*ckpt.AuditArchived, error)
	// Refused records a refusal that never reached another method.
	Refused(ctx context.Context, sc ckpt.Scope, r ckpt.Refusal)
	Status(ctx context.Context, sc ckpt.Scope) (*ckpt.Status, error)
	// Ready answers nil when saves are acknowledged, else why they are not.
	Ready(ctx context.Context) error
	// Health is the state of the store and what is wrong with it, as Status says.
	Health() (state string, problems []string)

	// Runs. The bool of a write says that it is the first reply to its
	// idempotency key, given again.

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
	// EventsOf reads events of all runs of an owner, in the order in which they were appended.
	EventsOf(ctx context.Context, sc ckpt.Scope, after int64, limit int) (*ckpt.OwnerEventPage, error)
	// Changed is closed when the next transaction with events is on disk. Take
	// it before reading, so that nothing slips between.
	Changed() <-chan struct{}

	Prompts(ctx context.Context, sc ckpt.Scope, f ckpt.PromptFilter) (*ckpt.PromptPage, error)
	Prompt(ctx context.Context, sc ckpt.Scope, id string) (*ckpt.Prompt, error)
	// PromptsChanged is closed when the next answer or withdrawal is on disk. Take
	// it before reading, so that nothing slips between.
	PromptsChanged() <-chan struct{}
	AskQuestion(ctx context.Context, sc ckpt.Scope, r ckpt.QuestionRequest) (*ckpt.Prompt, bool, error)
	AnswerPrompt(ctx context.Context, sc ckpt.Scope, a ckpt.PromptAnswer) (*ckpt.Prompt, bool, error)

	// NotifyTest puts a notice of type test into the queue of every hook.
	NotifyTest(ctx context.Context, sc ckpt.Scope) (*ckpt.NotifyTested, error)

	Drift(ctx context.Context, sc ckpt.Scope, f ckpt.DriftFilter) (*ckpt.DriftReport, error)
	Evaluate(ctx context.Context, sc ckpt.Scope, r ckpt.EvaluateRequest) (*ckpt.Evaluation, error)
	Feedback(ctx context.Context, sc ckpt.Scope, agent string) (*ckpt.DriftFeedback, error)
	Finding(ctx context.Context, sc ckpt.Scope, id string) (*ckpt.Finding, error)
	PostFinding(ctx context.Context, sc ckpt.Scope, agent string, r ckpt.FindingRequest) (*ckpt.PostedFinding, bool, error)
	Dismiss(ctx context.Context, sc ckpt.Scope, r ckpt.DismissRequest) (*ckpt.DismissedFinding, bool, error)

	// Overview answers same, and no overview, where the one that the query names is still right.
	Overview(ctx context.Context, sc ckpt.Scope, f survey.OverviewQuery) (v *survey.Overview, same bool, err error)
	// VerifyChain follows the chain of the whole audit log.
	VerifyChain(ctx context.Context, sc ckpt.Scope) (*survey.Verified, error)
	Findings(ctx context.Context, sc ckpt.Scope, f survey.FindingsQuery) (*survey.Findings, error)
	Forecast(ctx context.Context, sc ckpt.Scope, f survey.ForecastQuery) (*survey.Forecast, error)
	// WatchChanges begins to watch what changes: next waits for it, and stop ends it.
	WatchChanges(sc ckpt.Scope) (next func(context.Context) ([]survey.Change, error), stop func())
	Recorder(ctx context.Context, sc ckpt.Scope, run ckpt.RunRef, f survey.RecorderQuery) (*survey.Recorder, error)

	PutToken(ctx context.Context, sc ckpt.Scope, r ckpt.TokenRequest) (t *ckpt.Token, made bool, err error)
	Tokens(ctx context.Context, sc ckpt.Scope, f ckpt.TokenFilter) (*ckpt.TokenPage, error)
	RevokeToken(ctx context.Context, sc ckpt.Scope, id string) (*ckpt.Token, error)

	// LangGraph's checkpointers. Every method can be repeated: doing it twice does
	// it once. What is not there, or somebody else's, is no error: there is nothing
	// of it.

	GraphPut(ctx context.Context, sc ckpt.Scope, r *ckpt.GraphPut) (*ckpt.GraphSaved, error)
	GraphPutWrites(ctx context.Context, sc ckpt.Scope, r *ckpt.GraphPutWrites) (*ckpt.GraphWritten, error)
	GraphTuple(ctx context.Context, sc ckpt.Scope, r ckpt.GraphGet) (*ckpt.GraphTuple, error)
	GraphTuples(ctx context.Context, sc ckpt.Scope, q ckpt.GraphQuery) (*ckpt.GraphPage, error)
	GraphHistory(ctx context.Context, sc ckpt.Scope, q ckpt.GraphHistoryQuery) ([]ckpt.GraphHistory, error)
	GraphDeleteThread(ctx context.Context, sc ckpt.Scope, agent, thread string) (*ckpt.GraphRemoved, error)
	GraphDeleteRuns(ctx context.Context, sc ckpt.Scope, agent string, runIDs []string) (*ckpt.GraphRemoved, error)
	GraphPrune(ctx context.Context, sc ckpt.Scope, r ckpt.GraphPrune) (*ckpt.GraphRemoved, error)
	GraphCopyThread(ctx context.Context, sc ckpt.Scope, r ckpt.GraphCopy) (*ckpt.GraphCopied, error)
}
