package server

import (
	"context"
	"io"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// Store is what the server needs from the database, by noun. Every method of the interfaces below is one transaction,
// checks what the scope may see, and returns errors as *ckpt.Error. For a name or id that belongs to another
// owner, it returns not_found.
//
// A method with a key argument is a POST. If key is not "", the same key with the same request
// returns the first reply and replayed true. The same key with another request returns
// idempotency_mismatch.
type Store struct {
	Checkpoints Checkpoints
	Files       Files
	Agents      Agents
	Policies    Policies
	Audit       Audit
	Service     Service
	Runs        Runs
	Steps       Steps
	Operations  Operations
	Events      Events
	Prompts     Prompts
	Drift       Drift
	Surveys     Surveys
	Tokens      Tokens
	Graph       Graph
}

// database has every noun.
type database interface {
	Checkpoints
	Files
	Agents
	Policies
	Audit
	Service
	Runs
	Steps
	Operations
	Events
	Prompts
	Drift
	Surveys
	Tokens
	Graph
}

// StoreOf is a Store whose nouns are all one database.
func StoreOf(s database) Store {
	return Store{s, s, s, s, s, s, s, s, s, s, s, s, s, s, s}
}

// Checkpoints are checkpoints and their states.
type Checkpoints interface {
	Save(ctx context.Context, sc ckpt.Scope, r *ckpt.SaveRequest) (*ckpt.Saved, error)
	// Checkpoint reads one checkpoint. If state is true, it also reads the state and checks its
	// hash.
	Checkpoint(ctx context.Context, sc ckpt.Scope, id string, state bool) (*ckpt.Checkpoint, error)
	// Memory returns memory for a state to save. The SaveRequest has it as State, with Lent set.
	Memory(size int) []byte
	// Base returns the state of an agent's checkpoint and its hash, as the base of a change. The
	// caller must not write to the state. If there is no error, the caller must call release,
	// and must not read the state afterwards.
	Base(ctx context.Context, sc ckpt.Scope, agent, id string) (state []byte, sha256 string, release func(), err error)
	Checkpoints(ctx context.Context, sc ckpt.Scope, f ckpt.CheckpointFilter) (*ckpt.CheckpointPage, error)
	Latest(ctx context.Context, sc ckpt.Scope, f ckpt.CheckpointFilter, state bool) (*ckpt.Checkpoint, error)
	Patch(ctx context.Context, sc ckpt.Scope, id string, p ckpt.CheckpointPatch) (*ckpt.Checkpoint, error)
	Delete(ctx context.Context, sc ckpt.Scope, id string) (*ckpt.Removal, error)
	Restore(ctx context.Context, sc ckpt.Scope, r ckpt.RestoreRequest) (c *ckpt.Checkpoint, replayed bool, err error)
	Prune(ctx context.Context, sc ckpt.Scope, r ckpt.PruneRequest, key string) (rep *ckpt.PruneReport, replayed bool, err error)
}

// Files are the files that go with checkpoints.
type Files interface {
	MissingContents(ctx context.Context, sc ckpt.Scope, agent string, sums []string) (*ckpt.ContentsMissing, error)
	// PutContents stores the contents that next returns, until next returns io.EOF. After an
	// error, earlier contents can be stored.
	PutContents(ctx context.Context, sc ckpt.Scope, agent string, next func() (*ckpt.FileContent, error)) (*ckpt.ContentsStored, error)
	Content(ctx context.Context, sc ckpt.Scope, agent, sum string) ([]byte, error)
	PutTree(ctx context.Context, sc ckpt.Scope, r ckpt.TreeRequest) (*ckpt.TreeStored, error)
	Attach(ctx context.Context, sc ckpt.Scope, r ckpt.AttachRequest) (c *ckpt.Checkpoint, replayed bool, err error)
	FilesOf(ctx context.Context, sc ckpt.Scope, f ckpt.FilesFilter) (*ckpt.FilesPage, error)
	DiffFiles(ctx context.Context, sc ckpt.Scope, f ckpt.FilesDiffFilter) (*ckpt.FilesDiff, error)
}

// Agents are agents and their owners.
type Agents interface {
	Agents(ctx context.Context, sc ckpt.Scope, f ckpt.AgentFilter) (*ckpt.AgentPage, error)
	Erase(ctx context.Context, sc ckpt.Scope, agent string) (*ckpt.Erased, error)
	// Chown gives an owner's agents to another owner.
	Chown(ctx context.Context, sc ckpt.Scope, r ckpt.ChownRequest, key string) (done *ckpt.Chowned, replayed bool, err error)
	// ExportAgents writes a SQLite file. After an error that follows the first byte, the file is cut off, and Import
	// refuses it.
	ExportAgents(ctx context.Context, sc ckpt.Scope, r ckpt.ExportRequest, w io.Writer) error
	Import(ctx context.Context, sc ckpt.Scope, r ckpt.ImportRequest, body io.Reader) (*ckpt.ImportReport, error)
}

// Policies are what agents keep and watch.
type Policies interface {
	Policy(ctx context.Context, sc ckpt.Scope, agent string) (*ckpt.Policy, error)
	// SetOwnPolicy takes a JSON object. The agent does not set the members that it leaves out.
	// match are tags; the replaced policy must have one of them. Without tags, any policy is
	// replaced.
	SetOwnPolicy(ctx context.Context, sc ckpt.Scope, agent string, own []byte, match ...string) (*ckpt.Policy, error)
	// PolicyTag returns the tag of the agent's own policy.
	PolicyTag(ctx context.Context, sc ckpt.Scope, agent string) (string, error)
	// PolicyLayers returns, for ckpt.AllAgents, the policy of the owner's agents that set
	// nothing.
	PolicyLayers(ctx context.Context, sc ckpt.Scope, agent string) (*ckpt.PolicyLayers, error)
	SetOwnerPolicy(ctx context.Context, sc ckpt.Scope, set []byte) (*ckpt.OwnerPolicySet, error)
}

// Audit is the audit log.
type Audit interface {
	Audit(ctx context.Context, sc ckpt.Scope, f ckpt.AuditFilter) (*ckpt.AuditPage, error)
	// ArchiveAudit moves old rows of the log into a file.
	ArchiveAudit(ctx context.Context, sc ckpt.Scope, r ckpt.ArchiveRequest) (*ckpt.AuditArchived, error)
	// VerifyChain checks the chain of the whole audit log.
	VerifyChain(ctx context.Context, sc ckpt.Scope) (*survey.Verified, error)
	// Refused records a refusal that reached no other method.
	Refused(ctx context.Context, sc ckpt.Scope, r ckpt.Refusal)
}

// Service is how the daemon is.
type Service interface {
	Status(ctx context.Context, sc ckpt.Scope) (*ckpt.Status, error)
	// Ready returns nil if saves are acknowledged, else the reason why they are not.
	Ready(ctx context.Context) error
	// Health returns the state of the store and its problems, as in Status.
	Health() (state string, problems []string)
	// NotifyTest puts a notice of type test into the queue of every hook.
	NotifyTest(ctx context.Context, sc ckpt.Scope) (*ckpt.NotifyTested, error)
}

// Runs are runs. The bool result of a write says that the result is the first reply to its
// idempotency key, given again; so it is of every other interface below.
type Runs interface {
	StartRun(ctx context.Context, sc ckpt.Scope, r ckpt.RunRequest) (*ckpt.Run, bool, error)
	Run(ctx context.Context, sc ckpt.Scope, run ckpt.RunRef) (*ckpt.Run, error)
	Runs(ctx context.Context, sc ckpt.Scope, f ckpt.RunFilter) (*ckpt.RunPage, error)
	Beat(ctx context.Context, sc ckpt.Scope, run ckpt.RunRef, b ckpt.Heartbeat) (*ckpt.Run, error)
	EndRun(ctx context.Context, sc ckpt.Scope, run ckpt.RunRef, r ckpt.EndRequest) (*ckpt.Run, bool, error)
	Resume(ctx context.Context, sc ckpt.Scope, r ckpt.ResumeRequest) (*ckpt.Plan, bool, error)
	DeleteRun(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, force bool) (*ckpt.DeletedRun, error)
	ClearRun(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef) (*ckpt.ClearedRun, error)
}

// Steps are steps.
type Steps interface {
	BeginStep(ctx context.Context, sc ckpt.Scope, run ckpt.RunRef, r ckpt.StepRequest) (*ckpt.Step, bool, error)
	FinishStep(ctx context.Context, sc ckpt.Scope, run ckpt.RunRef, r ckpt.StepRequest) (*ckpt.Step, bool, error)
	Steps(ctx context.Context, sc ckpt.Scope, run ckpt.RunRef, f ckpt.ListFilter) (*ckpt.StepPage, error)
}

// Operations are operations.
type Operations interface {
	BeginOperation(ctx context.Context, sc ckpt.Scope, run ckpt.RunRef, r ckpt.OperationRequest) (*ckpt.Operation, bool, error)
	EndOperation(ctx context.Context, sc ckpt.Scope, run ckpt.RunRef, r ckpt.OperationEnd) (*ckpt.OperationEnded, bool, error)
	ResolveOperation(ctx context.Context, sc ckpt.Scope, run ckpt.RunRef, r ckpt.OperationResolution) (*ckpt.OperationEnded, bool, error)
	Operations(ctx context.Context, sc ckpt.Scope, run ckpt.RunRef, f ckpt.ListFilter) (*ckpt.OperationPage, error)
}

// Events are the events of runs.
type Events interface {
	Append(ctx context.Context, sc ckpt.Scope, run ckpt.RunRef, events []ckpt.NewEvent, key string) (*ckpt.Appended, bool, error)
	// Events reads events after a sequence number, oldest first.
	Events(ctx context.Context, sc ckpt.Scope, run ckpt.RunRef, after int64, limit int) (*ckpt.EventPage, error)
	// EventsOf reads events of all runs of an owner, in the order in which they were appended.
	EventsOf(ctx context.Context, sc ckpt.Scope, after int64, limit int) (*ckpt.OwnerEventPage, error)
	// Changed returns a channel that is closed when the next transaction with events is on disk.
	// Call it before reading, so that no event is missed.
	Changed() <-chan struct{}
}

// Prompts are questions to people.
type Prompts interface {
	Prompts(ctx context.Context, sc ckpt.Scope, f ckpt.PromptFilter) (*ckpt.PromptPage, error)
	Prompt(ctx context.Context, sc ckpt.Scope, id string) (*ckpt.Prompt, error)
	// PromptsChanged returns a channel that is closed when the next answer or withdrawal is on
	// disk. Call it before reading, so that no change is missed.
	PromptsChanged() <-chan struct{}
	AskQuestion(ctx context.Context, sc ckpt.Scope, r ckpt.QuestionRequest) (*ckpt.Prompt, bool, error)
	AnswerPrompt(ctx context.Context, sc ckpt.Scope, a ckpt.PromptAnswer) (*ckpt.Prompt, bool, error)
}

// Drift is findings and rules.
type Drift interface {
	Drift(ctx context.Context, sc ckpt.Scope, f ckpt.DriftFilter) (*ckpt.DriftReport, error)
	Evaluate(ctx context.Context, sc ckpt.Scope, r ckpt.EvaluateRequest) (*ckpt.Evaluation, error)
	Feedback(ctx context.Context, sc ckpt.Scope, agent string) (*ckpt.DriftFeedback, error)
	Finding(ctx context.Context, sc ckpt.Scope, id string) (*ckpt.Finding, error)
	PostFinding(ctx context.Context, sc ckpt.Scope, agent string, r ckpt.FindingRequest) (*ckpt.PostedFinding, bool, error)
	Dismiss(ctx context.Context, sc ckpt.Scope, r ckpt.DismissRequest) (*ckpt.DismissedFinding, bool, error)
}

// Surveys are overviews for people.
type Surveys interface {
	// Overview returns same, and no overview, if the overview that the query names is still
	// current.
	Overview(ctx context.Context, sc ckpt.Scope, f survey.OverviewQuery) (v *survey.Overview, same bool, err error)
	Findings(ctx context.Context, sc ckpt.Scope, f survey.FindingsQuery) (*survey.Findings, error)
	Forecast(ctx context.Context, sc ckpt.Scope, f survey.ForecastQuery) (*survey.Forecast, error)
	// WatchChanges begins to watch changes. next waits for a change, and stop ends the watch.
	WatchChanges(sc ckpt.Scope) (next func(context.Context) ([]survey.Change, error), stop func())
	Recorder(ctx context.Context, sc ckpt.Scope, run ckpt.RunRef, f survey.RecorderQuery) (*survey.Recorder, error)
	Transcript(ctx context.Context, sc ckpt.Scope, run ckpt.RunRef, f survey.TranscriptQuery) (*survey.Transcript, error)
}

// Tokens are tokens for spans.
type Tokens interface {
	PutToken(ctx context.Context, sc ckpt.Scope, r ckpt.TokenRequest) (t *ckpt.Token, made bool, err error)
	Tokens(ctx context.Context, sc ckpt.Scope, f ckpt.TokenFilter) (*ckpt.TokenPage, error)
	RevokeToken(ctx context.Context, sc ckpt.Scope, id string) (*ckpt.Token, error)
}

// Graph is LangGraph's checkpointers. Every method can be repeated without any effect. An object that
// does not exist, or that belongs to another owner, is no error: the result is empty.
type Graph interface {
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
