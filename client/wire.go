package client

import (
	"context"
	"io"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// Wire has one method for each call of the API. They use the connection of its Client. Writes of a
// run go through the spool of a Client with FailOpen, as the writes of Agent and Run do.
//
// A result named replayed is true if a call with the same idempotency key was made before.
type Wire struct{ client *client.Client }

// Wire returns the calls of the API, over the same connection.
func (c *Client) Wire() *Wire {
	c.init()
	return &Wire{c.wire}
}

// Agents lists one page of agents.
func (w *Wire) Agents(ctx context.Context, f ckpt.AgentFilter) (*ckpt.AgentPage, error) {
	return w.client.Agents(ctx, f)
}

// Policy reads an agent's settings.
func (w *Wire) Policy(ctx context.Context, agent string) (*ckpt.Policy, error) {
	return w.client.Policy(ctx, agent)
}

// PolicyLayers reads an agent's policy with the source of each value. For ckptsidecar.AllAgents, it
// reads the policy of the owner's agents that have none of their own.
func (w *Wire) PolicyLayers(ctx context.Context, agent string) (*ckpt.PolicyLayers, error) {
	return w.client.PolicyLayers(ctx, agent)
}

// SetOwnPolicy replaces an agent's own policy by a JSON object, and returns the effective policy.
func (w *Wire) SetOwnPolicy(ctx context.Context, agent string, own ckpt.JSON) (*ckpt.Policy, error) {
	return w.client.SetOwnPolicy(ctx, agent, own)
}

// SetOwnerPolicy replaces the owner's policy for all agents by a JSON object.
func (w *Wire) SetOwnerPolicy(ctx context.Context, set ckpt.JSON) (*ckpt.OwnerPolicySet, error) {
	return w.client.SetOwnerPolicy(ctx, set)
}

// SetPolicy replaces an agent's own policy by the values of p that differ from the defaults. The
// other values are left to the policies for all agents.
func (w *Wire) SetPolicy(ctx context.Context, agent string, p ckpt.Policy) (*ckpt.Policy, error) {
	return w.client.SetPolicy(ctx, agent, p)
}

// Erase removes an agent and everything it has, for good.
func (w *Wire) Erase(ctx context.Context, agent string) (*ckpt.Erased, error) {
	return w.client.Erase(ctx, agent)
}

// DeleteRun removes a run with everything that belongs to it. force is for administrators.
func (w *Wire) DeleteRun(ctx context.Context, ref ckpt.RunRef, force bool) (*ckpt.DeletedRun, error) {
	return w.client.DeleteRun(ctx, ref, force)
}

// ClearRun removes the checkpoints of a run that are not pinned and not needed.
func (w *Wire) ClearRun(ctx context.Context, ref ckpt.RunRef) (*ckpt.ClearedRun, error) {
	return w.client.ClearRun(ctx, ref)
}

// ArchiveAudit makes the daemon move rows of the audit log from before a time into a file. It is for administrators.
func (w *Wire) ArchiveAudit(ctx context.Context, r ckpt.ArchiveRequest) (*ckpt.AuditArchived, error) {
	return w.client.ArchiveAudit(ctx, r)
}

// Prune applies the policies now, or reports what they would remove.
func (w *Wire) Prune(ctx context.Context, r ckpt.PruneRequest, key string) (rep *ckpt.PruneReport, replayed bool, err error) {
	return w.client.Prune(ctx, r, key)
}

// Export writes an agent as a SQLite file. After an error the file is cut off, and
// Import refuses it.
func (w *Wire) Export(ctx context.Context, agent string, to io.Writer) error {
	return w.client.Export(ctx, agent, to)
}

// ExportAgents writes some agents as a SQLite file, or all agents, or one run of an agent. After an error
// the file is cut off, and Import refuses it.
func (w *Wire) ExportAgents(ctx context.Context, r ckpt.ExportRequest, to io.Writer) error {
	return w.client.ExportAgents(ctx, r, to)
}

// Import reads what Export wrote.
func (w *Wire) Import(ctx context.Context, r ckpt.ImportRequest, from io.Reader) (*ckpt.ImportReport, error) {
	return w.client.Import(ctx, r, from)
}

// Audit lists one page of the audit log, oldest first.
func (w *Wire) Audit(ctx context.Context, f ckpt.AuditFilter) (*ckpt.AuditPage, error) {
	return w.client.Audit(ctx, f)
}

// Status returns the daemon's status.
func (w *Wire) Status(ctx context.Context) (*ckpt.Status, error) {
	return w.client.Status(ctx)
}

// Version returns the daemon's version.
func (w *Wire) Version(ctx context.Context) (*ckpt.Version, error) {
	return w.client.Version(ctx)
}

// Health checks whether the daemon answers at all.
func (w *Wire) Health(ctx context.Context) error {
	return w.client.Health(ctx)
}

// Ready checks whether the daemon acknowledges saves. If it does not, the error has the reason.
func (w *Wire) Ready(ctx context.Context) error {
	return w.client.Ready(ctx)
}

// Checkpoint reads one checkpoint, and its state if state is true.
func (w *Wire) Checkpoint(ctx context.Context, id string, state bool) (*ckpt.Checkpoint, error) {
	return w.client.Checkpoint(ctx, id, state)
}

// Latest reads the newest checkpoint that matches the filter. It uses the filter's Run and Kind,
// and Suspect if that is false.
func (w *Wire) Latest(ctx context.Context, f ckpt.CheckpointFilter, state bool) (*ckpt.Checkpoint, error) {
	return w.client.Latest(ctx, f, state)
}

// State reads the bytes of a state.
func (w *Wire) State(ctx context.Context, id string) ([]byte, error) {
	return w.client.State(ctx, id)
}

// Checkpoints lists one page, newest first.
func (w *Wire) Checkpoints(ctx context.Context, f ckpt.CheckpointFilter) (*ckpt.CheckpointPage, error) {
	return w.client.Checkpoints(ctx, f)
}

// Patch changes labels and pin of a checkpoint.
func (w *Wire) Patch(ctx context.Context, id string, p ckpt.CheckpointPatch) (*ckpt.Checkpoint, error) {
	return w.client.Patch(ctx, id, p)
}

// Delete removes a checkpoint.
func (w *Wire) Delete(ctx context.Context, id string) (*ckpt.Removal, error) {
	return w.client.Delete(ctx, id)
}

// Diff compares the states of two checkpoints.
func (w *Wire) Diff(ctx context.Context, from, to string) (*ckpt.Diff, error) {
	return w.client.Diff(ctx, from, to)
}

// Restore returns the checkpoint to go back to, with its state, and records the restore.
func (w *Wire) Restore(ctx context.Context, r ckpt.RestoreRequest) (ck *ckpt.Checkpoint, replayed bool, err error) {
	return w.client.Restore(ctx, r)
}

// Save puts a state on disk. It makes an id if the request has none. Give an id to repeat a save
// whose outcome is unknown. For a large state, it sends only the changes since the run's last one.
func (w *Wire) Save(ctx context.Context, r *ckpt.SaveRequest) (*ckpt.Saved, error) {
	return w.client.Save(ctx, r)
}

// StartRun registers a run, or adopts a run that its saves have created.
func (w *Wire) StartRun(ctx context.Context, r ckpt.RunRequest) (run *ckpt.Run, replayed bool, err error) {
	return w.client.StartRun(ctx, r)
}

// Run reads one run.
func (w *Wire) Run(ctx context.Context, ref ckpt.RunRef) (*ckpt.Run, error) {
	return w.client.Run(ctx, ref)
}

// Runs lists one page of runs, the most recently changed first.
func (w *Wire) Runs(ctx context.Context, f ckpt.RunFilter) (*ckpt.RunPage, error) {
	return w.client.Runs(ctx, f)
}

// Beat reports that the owner is alive. If b names no epoch, the epoch of ref is used. The same
// applies to every write below.
func (w *Wire) Beat(ctx context.Context, ref ckpt.RunRef, b ckpt.Heartbeat) (*ckpt.Run, error) {
	return w.client.Beat(ctx, ref, b)
}

// EndRun ends a run, or its current segment.
func (w *Wire) EndRun(ctx context.Context, ref ckpt.RunRef, r ckpt.EndRequest) (run *ckpt.Run, replayed bool, err error) {
	return w.client.EndRun(ctx, ref, r)
}

// Resume asks how to continue a run. If it is safe, the caller becomes the owner. The plan's
// checkpoint has its state.
func (w *Wire) Resume(ctx context.Context, r ckpt.ResumeRequest) (plan *ckpt.Plan, replayed bool, err error) {
	return w.client.Resume(ctx, r)
}

// BeginStep begins a step, or records a whole step. If replayed is true, the step was done before,
// and the answer has its result.
func (w *Wire) BeginStep(ctx context.Context, ref ckpt.RunRef, r ckpt.StepRequest) (step *ckpt.Step, replayed bool, err error) {
	return w.client.BeginStep(ctx, ref, r)
}

// FinishStep records how a step ended. The request must have the name and the
// arguments that the step began with.
func (w *Wire) FinishStep(ctx context.Context, ref ckpt.RunRef, r ckpt.StepRequest) (step *ckpt.Step, replayed bool, err error) {
	return w.client.FinishStep(ctx, ref, r)
}

// Steps lists one page of a run's steps, in the order in which they began.
func (w *Wire) Steps(ctx context.Context, ref ckpt.RunRef, f ckpt.ListFilter) (*ckpt.StepPage, error) {
	return w.client.Steps(ctx, ref, f)
}

// BeginOperation begins a risky action.
func (w *Wire) BeginOperation(ctx context.Context, ref ckpt.RunRef, r ckpt.OperationRequest) (o *ckpt.Operation, replayed bool, err error) {
	return w.client.BeginOperation(ctx, ref, r)
}

// EndOperation ends an operation: it succeeded, it is known not to have happened, or nobody knows. After a failure,
// Restore in the answer has the state to go back to.
func (w *Wire) EndOperation(ctx context.Context, ref ckpt.RunRef, r ckpt.OperationEnd) (o *ckpt.OperationEnded, replayed bool, err error) {
	return w.client.EndOperation(ctx, ref, r)
}

// ResolveOperation says what became of an uncertain attempt.
func (w *Wire) ResolveOperation(ctx context.Context, ref ckpt.RunRef, r ckpt.OperationResolution) (o *ckpt.OperationEnded, replayed bool, err error) {
	return w.client.ResolveOperation(ctx, ref, r)
}

// Operations lists one page of a run's operations, newest first.
func (w *Wire) Operations(ctx context.Context, ref ckpt.RunRef, f ckpt.ListFilter) (*ckpt.OperationPage, error) {
	return w.client.Operations(ctx, ref, f)
}

// Append adds a batch to a run's journal: all of it or nothing.
func (w *Wire) Append(ctx context.Context, ref ckpt.RunRef, events []ckpt.NewEvent, key string) (appended *ckpt.Appended, replayed bool, err error) {
	return w.client.Append(ctx, ref, events, key)
}

// Events reads one page of a run's events after a sequence number, oldest first.
func (w *Wire) Events(ctx context.Context, ref ckpt.RunRef, after int64, limit int) (*ckpt.EventPage, error) {
	return w.client.Events(ctx, ref, after, limit)
}

// PutToken registers a token that ckptsidecar.NewToken created.
func (w *Wire) PutToken(ctx context.Context, r ckpt.TokenRequest) (*ckpt.Token, error) {
	return w.client.PutToken(ctx, r)
}

// RevokeToken revokes a token at once.
func (w *Wire) RevokeToken(ctx context.Context, id string) (*ckpt.Token, error) {
	return w.client.RevokeToken(ctx, id)
}

// Tokens lists one page of tokens, newest first.
func (w *Wire) Tokens(ctx context.Context, f ckpt.TokenFilter) (*ckpt.TokenPage, error) {
	return w.client.Tokens(ctx, f)
}

// Prompts lists one page of prompts, newest first.
func (w *Wire) Prompts(ctx context.Context, f ckpt.PromptFilter) (*ckpt.PromptPage, error) {
	return w.client.Prompts(ctx, f)
}

// AskQuestion puts a question of a run to a person. If replayed is true, it was asked before, and
// the prompt is the earlier one.
func (w *Wire) AskQuestion(ctx context.Context, r ckpt.QuestionRequest) (p *ckpt.Prompt, replayed bool, err error) {
	return w.client.AskQuestion(ctx, r)
}

// Prompt reads one prompt.
func (w *Wire) Prompt(ctx context.Context, id string) (*ckpt.Prompt, error) {
	return w.client.Prompt(ctx, id)
}

// WaitPrompt returns a prompt as soon as it is no longer open: answered, expired or withdrawn. The
// daemon holds the request until then, on a connection of its own. If the daemon restarts,
// WaitPrompt asks again. It ends with ctx at the latest.
func (w *Wire) WaitPrompt(ctx context.Context, id string) (*ckpt.Prompt, error) {
	return w.client.WaitPrompt(ctx, id)
}

// AnswerPrompt records a person's answer. A decision is carried out. The answer to a question is
// kept for the run that asked.
func (w *Wire) AnswerPrompt(ctx context.Context, answer ckpt.PromptAnswer) (p *ckpt.Prompt, replayed bool, err error) {
	return w.client.AnswerPrompt(ctx, answer)
}

// NotifyTest sends a notice of type test to every hook in the daemon's settings.
func (w *Wire) NotifyTest(ctx context.Context) (*ckpt.NotifyTested, error) {
	return w.client.NotifyTest(ctx)
}

// Follow calls f with each event of a run after a sequence number: first the stored events, then
// the new ones. It ends when ctx ends, when f returns an error, or when the run is gone, and always
// with an error. If the daemon restarts, Follow connects again and continues after the last event:
// it loses no event and repeats none. Client.Deadline limits the first connection only.
func (w *Wire) Follow(ctx context.Context, ref ckpt.RunRef, after int64, f func(ckpt.Event) error) error {
	return w.client.Follow(ctx, ref, after, f)
}

// FollowAll calls f with each event of all runs of this user after event number N: first the stored
// events, in the order in which they were appended, then the new ones. It ends as Follow does, and
// survives restarts of the daemon: it loses no event and repeats none.
func (w *Wire) FollowAll(ctx context.Context, after int64, f func(ckpt.OwnerEvent) error) error {
	return w.client.FollowAll(ctx, after, f)
}

// EventsOf reads one page of the events of all runs of this user, after event number N.
func (w *Wire) EventsOf(ctx context.Context, after int64, limit int) (*ckpt.OwnerEventPage, error) {
	return w.client.EventsOf(ctx, after, limit)
}

// Drift reads the verdict of a run and its findings, newest first: the open ones, or all.
func (w *Wire) Drift(ctx context.Context, f ckpt.DriftFilter) (*ckpt.DriftReport, error) {
	return w.client.Drift(ctx, f)
}

// Evaluate reports in which recorded runs a rule would have warned.
func (w *Wire) Evaluate(ctx context.Context, r ckpt.EvaluateRequest) (*ckpt.Evaluation, error) {
	return w.client.Evaluate(ctx, r)
}

// Feedback reports how often an agent's rules warned, how often people dismissed the findings, and
// which settings would have avoided those.
func (w *Wire) Feedback(ctx context.Context, agent string) (*ckpt.DriftFeedback, error) {
	return w.client.Feedback(ctx, agent)
}

// Finding reads one finding.
func (w *Wire) Finding(ctx context.Context, id string) (*ckpt.Finding, error) {
	return w.client.Finding(ctx, id)
}

// PostFinding records a finding that the agent reports itself.
func (w *Wire) PostFinding(ctx context.Context, agent string, r ckpt.FindingRequest) (f *ckpt.PostedFinding, replayed bool, err error) {
	return w.client.PostFinding(ctx, agent, r)
}

// Dismiss says that a finding is wrong, or has been dealt with. Checkpoints that were suspect only
// because of it are clean again.
func (w *Wire) Dismiss(ctx context.Context, r ckpt.DismissRequest) (f *ckpt.DismissedFinding, replayed bool, err error) {
	return w.client.Dismiss(ctx, r)
}
