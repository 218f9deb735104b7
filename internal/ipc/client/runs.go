package client

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// StartRun registers a run, or adopts a run that its saves have created.
func (c *Client) StartRun(ctx context.Context, r ckpt.RunRequest) (run *ckpt.Run, replayed bool, err error) {
	if err := ckpt.CheckAgentName(r.Agent); err != nil {
		return nil, false, err
	}
	a, err := keyedAsk(agentPath(r.Agent)+"/runs", r, r.IdempotencyKey)
	if err == nil {
		a.because(ctx)
	}
	return fetchKeyed[ckpt.Run](ctx, c, a, err)
}

// Run reads one run.
func (c *Client) Run(ctx context.Context, ref ckpt.RunRef) (*ckpt.Run, error) {
	return fetchPart[ckpt.Run](ctx, c, ref, "", nil)
}

// DeleteRun removes a run with everything that belongs to it. force is for
// administrators.
func (c *Client) DeleteRun(ctx context.Context, ref ckpt.RunRef, force bool) (*ckpt.DeletedRun, error) {
	path, err := runPath(ref)
	if err != nil {
		return nil, err
	}
	a := &ask{method: http.MethodDelete, path: path, write: true}
	if force {
		a.query.add("force", "true")
	}
	deleted := new(ckpt.DeletedRun)
	_, err = c.fetch(ctx, a, deleted)
	return orNil(deleted, err)
}

// ClearRun removes the checkpoints of a run that nothing needs.
func (c *Client) ClearRun(ctx context.Context, ref ckpt.RunRef) (*ckpt.ClearedRun, error) {
	path, err := runPath(ref, "checkpoints")
	if err != nil {
		return nil, err
	}
	cleared := new(ckpt.ClearedRun)
	_, err = c.fetch(ctx, &ask{method: http.MethodDelete, path: path, write: true}, cleared)
	return orNil(cleared, err)
}

// Runs lists one page of runs, the most recently changed first.
func (c *Client) Runs(ctx context.Context, f ckpt.RunFilter) (*ckpt.RunPage, error) {
	var q values
	q.add("status", string(f.Status))
	q.add("agent", f.Agent)
	q.add("workflow", f.Workflow)
	addLabels(&q, f.Labels)
	q.add("goal", f.Goal)
	q.add("since", f.Since.String())
	q.add("until", f.Until.String())
	q.add("severity", string(f.Severity))
	q.add("sort", string(f.Sort))
	if f.Lives {
		q.add("lives", "true")
	}
	q.add("before", f.Before)
	q.addLimit(f.Limit)
	page := new(ckpt.RunPage)
	_, err := c.fetch(ctx, &ask{method: http.MethodGet, path: "/v1/runs", query: q, repeatable: true}, page)
	return orNil(page, err)
}

// Beat reports that the owner is alive. If b names no epoch, the epoch of ref is used.
// The same applies to every write below.
func (c *Client) Beat(ctx context.Context, ref ckpt.RunRef, b ckpt.Heartbeat) (*ckpt.Run, error) {
	path, err := runPath(ref, "heartbeat")
	if err != nil {
		return nil, err
	}
	b.Epoch = epochOf(b.Epoch, ref)
	a, err := jsonAsk(http.MethodPost, path, b)
	if err != nil {
		return nil, err
	}
	a.repeatable = true
	run := new(ckpt.Run)
	_, err = c.fetch(ctx, a, run)
	return orNil(run, err)
}

// EndRun ends a run, or its current segment.
func (c *Client) EndRun(ctx context.Context, ref ckpt.RunRef, r ckpt.EndRequest) (run *ckpt.Run, replayed bool, err error) {
	raw := []rawMember{{"result", r.Result}, {"state", r.State}}
	r.Epoch, r.Result, r.State = epochOf(r.Epoch, ref), nil, nil
	a, err := runAsk(ref, r, r.IdempotencyKey, raw, "end")
	return fetchKeyed[ckpt.Run](ctx, c, a, err)
}

// Resume asks how to continue a run. If it is safe, the caller becomes the owner. The
// plan's checkpoint has its state.
func (c *Client) Resume(ctx context.Context, r ckpt.ResumeRequest) (plan *ckpt.Plan, replayed bool, err error) {
	a, err := runAsk(ckpt.RunRef{Agent: r.Agent, Run: r.Run}, r, r.IdempotencyKey, nil, "resume")
	if err != nil {
		return nil, false, err
	}
	plan = new(ckpt.Plan)
	ans, state, err := c.fetchWithState(ctx, a, plan)
	if err != nil {
		return nil, false, err
	}
	if plan.Checkpoint != nil {
		plan.Checkpoint.State = state
	}
	return plan, ans.replayed(), nil
}

// BeginStep begins a step, or records a whole step. If replayed is true, the step was
// done before, and the answer has its result.
func (c *Client) BeginStep(ctx context.Context, ref ckpt.RunRef, r ckpt.StepRequest) (step *ckpt.Step, replayed bool, err error) {
	raw := []rawMember{{"args", r.Args}, {"result", r.Result}}
	r.Epoch, r.Args, r.Result = epochOf(r.Epoch, ref), nil, nil
	a, err := runAsk(ref, r, r.IdempotencyKey, raw, "steps")
	return fetchKeyed[ckpt.Step](ctx, c, a, err)
}

// FinishStep records how a step ended. The request must have the name and the
// arguments that the step began with.
func (c *Client) FinishStep(ctx context.Context, ref ckpt.RunRef, r ckpt.StepRequest) (step *ckpt.Step, replayed bool, err error) {
	if err := ckpt.CheckKey("step key", r.Key); err != nil {
		return nil, false, err
	}
	end := ipc.StepEnd{
		Epoch: epochOf(r.Epoch, ref), Status: r.Status, Error: r.Error, Turn: r.Turn, Outcome: r.Outcome, DurationMS: r.DurationMS,
		InputTokens: r.InputTokens, OutputTokens: r.OutputTokens, CostUSD: r.CostUSD, Progress: r.Progress,
	}
	a, err := runAsk(ref, end, r.IdempotencyKey, []rawMember{{"result", r.Result}}, "steps", r.Key, "finish")
	return fetchKeyed[ckpt.Step](ctx, c, a, err)
}

// Steps lists one page of a run's steps, in the order in which they began.
func (c *Client) Steps(ctx context.Context, ref ckpt.RunRef, f ckpt.ListFilter) (*ckpt.StepPage, error) {
	return fetchPart[ckpt.StepPage](ctx, c, ref, "steps", listQuery(f))
}

// BeginOperation begins a risky action.
func (c *Client) BeginOperation(ctx context.Context, ref ckpt.RunRef, r ckpt.OperationRequest) (o *ckpt.Operation, replayed bool, err error) {
	raw := []rawMember{{"args", r.Args}, {"result_schema", r.ResultSchema}, {"state", r.State}}
	r.Epoch, r.Args, r.ResultSchema, r.State = epochOf(r.Epoch, ref), nil, nil, nil
	a, err := runAsk(ref, r, r.IdempotencyKey, raw, "operations")
	if err == nil {
		a.direct = !r.MayWait
	}
	return fetchKeyed[ckpt.Operation](ctx, c, a, err)
}

// EndOperation ends an operation: it succeeded, it is known not to have happened, or nobody knows.
// After a failure, Restore in the answer has the state to go back to.
func (c *Client) EndOperation(ctx context.Context, ref ckpt.RunRef, r ckpt.OperationEnd) (o *ckpt.OperationEnded, replayed bool, err error) {
	if err := wellformed.OperationEnd(&r); err != nil {
		return nil, false, err
	}
	verb := map[ckpt.OperationStatus]string{ckpt.OperationSucceeded: "succeed", ckpt.OperationFailed: "fail", ckpt.OperationUncertain: "doubt"}[r.Status]
	raw := []rawMember{{"result", r.Result}}
	r.Epoch, r.Result = epochOf(r.Epoch, ref), nil
	a, err := runAsk(ref, r, r.IdempotencyKey, raw, "operations", r.Key, verb)
	return c.fetchEnded(ctx, a, err)
}

// ResolveOperation says what became of an uncertain attempt.
func (c *Client) ResolveOperation(ctx context.Context, ref ckpt.RunRef, r ckpt.OperationResolution) (o *ckpt.OperationEnded, replayed bool, err error) {
	if err := wellformed.OperationResolution(&r); err != nil {
		return nil, false, err
	}
	raw := []rawMember{{"result", r.Result}}
	r.Result = nil
	a, err := runAsk(ref, r, r.IdempotencyKey, raw, "operations", r.Key, "resolve")
	return c.fetchEnded(ctx, a, err)
}

func (c *Client) fetchEnded(ctx context.Context, a *ask, err error) (o *ckpt.OperationEnded, replayed bool, _ error) {
	if err != nil {
		return nil, false, err
	}
	o = new(ckpt.OperationEnded)
	ans, state, err := c.fetchWithState(ctx, a, o)
	if err != nil {
		return nil, false, err
	}
	if o.Restore != nil {
		o.Restore.State = state
	}
	return o, ans.replayed(), nil
}

// Operations lists one page of a run's operations, newest first.
func (c *Client) Operations(ctx context.Context, ref ckpt.RunRef, f ckpt.ListFilter) (*ckpt.OperationPage, error) {
	return fetchPart[ckpt.OperationPage](ctx, c, ref, "operations", listQuery(f))
}

// Append adds a batch to a run's journal: all of it or nothing.
func (c *Client) Append(ctx context.Context, ref ckpt.RunRef, events []ckpt.NewEvent,
	key string) (appended *ckpt.Appended, replayed bool, err error) {
	if err := wellformed.Events(events); err != nil {
		return nil, false, err
	}
	a, err := runAsk(ref, nil, key, nil, "events")
	if err != nil {
		return nil, false, err
	}
	if a.body, err = eventsBody(events); err != nil {
		return nil, false, err
	}
	if ref.Epoch != nil {
		a.query.add("epoch", strconv.FormatInt(*ref.Epoch, 10))
	}
	return fetchKeyed[ckpt.Appended](ctx, c, a, nil)
}

// eventsBody writes a batch with unchanged payloads.
func eventsBody(events []ckpt.NewEvent) ([]byte, error) {
	b := []byte{'['}
	for i, e := range events {
		if i > 0 {
			b = append(b, ',')
		}
		payload := rawMember{"payload", e.Payload}
		e.Payload = nil
		text, err := withRaw(e, payload)
		if err != nil {
			return nil, err
		}
		b = append(b, text...)
	}
	return append(b, ']'), nil
}

// Events reads one page of a run's events after a sequence number, oldest first.
func (c *Client) Events(ctx context.Context, ref ckpt.RunRef, after int64, limit int) (*ckpt.EventPage, error) {
	var q values
	if after != 0 {
		q.add("after", strconv.FormatInt(after, 10))
	}
	q.addLimit(limit)
	return fetchPart[ckpt.EventPage](ctx, c, ref, "events", q)
}

// Prompts lists one page of prompts, newest first.
func (c *Client) Prompts(ctx context.Context, f ckpt.PromptFilter) (*ckpt.PromptPage, error) {
	var q values
	if f.Open {
		q.add("open", "true")
	}
	q.add("before", f.Before)
	q.addLimit(f.Limit)
	page := new(ckpt.PromptPage)
	_, err := c.fetch(ctx, &ask{method: http.MethodGet, path: "/v1/prompts", query: q, repeatable: true}, page)
	return orNil(page, err)
}

// AskQuestion puts a question of a run to a person. If replayed is true, it was asked
// before, and the prompt is the earlier one.
func (c *Client) AskQuestion(ctx context.Context, r ckpt.QuestionRequest) (p *ckpt.Prompt, replayed bool, err error) {
	raw := []rawMember{{"schema", r.Schema}}
	r.Schema = nil
	a, err := runAsk(ckpt.RunRef{Agent: r.Agent, Run: r.Run}, r, r.IdempotencyKey, raw, "prompts")
	return fetchKeyed[ckpt.Prompt](ctx, c, a, err)
}

// Prompt reads one prompt.
func (c *Client) Prompt(ctx context.Context, id string) (*ckpt.Prompt, error) {
	if err := ckpt.CheckID(id); err != nil {
		return nil, err
	}
	p := new(ckpt.Prompt)
	_, err := c.fetch(ctx, &ask{method: http.MethodGet, path: "/v1/prompts/" + id, repeatable: true}, p)
	return orNil(p, err)
}

// AnswerPrompt records a person's answer. A decision is carried out. The answer to a
// question is kept for the run that asked.
func (c *Client) AnswerPrompt(ctx context.Context, answer ckpt.PromptAnswer) (p *ckpt.Prompt, replayed bool, err error) {
	if err := answer.Check(); err != nil {
		return nil, false, err
	}
	raw := rawMember{"data", answer.Data}
	answer.Data = nil
	a, err := keyedAsk("/v1/prompts/"+answer.ID+"/answer", answer, answer.IdempotencyKey)
	if err == nil {
		a.body, err = withRaw(answer, raw)
	}
	return fetchKeyed[ckpt.Prompt](ctx, c, a, err)
}

// NotifyTest sends a notice of type test to every hook in the daemon's settings.
func (c *Client) NotifyTest(ctx context.Context) (*ckpt.NotifyTested, error) {
	tested := new(ckpt.NotifyTested)
	_, err := c.fetch(ctx, &ask{method: http.MethodPost, path: "/v1/notify/test", write: true}, tested)
	return orNil(tested, err)
}

// runPath returns the path of a run or of an object in it. Keys can be any text.
func runPath(ref ckpt.RunRef, parts ...string) (string, error) {
	if err := ref.Check(); err != nil {
		return "", err
	}
	path := agentPath(ref.Agent) + "/runs/" + runOrMain(ref.Run)
	for _, part := range parts {
		path += "/" + segment(part)
	}
	return path, nil
}

// segment escapes one part of a path. It also escapes parts of only dots, which would
// mean another path.
func segment(part string) string {
	switch part {
	case ".":
		return "%2E"
	case "..":
		return "%2E%2E"
	}
	return url.PathEscape(part)
}

func epochOf(epoch *int64, ref ckpt.RunRef) *int64 {
	if epoch == nil {
		return ref.Epoch
	}
	return epoch
}

func listQuery(f ckpt.ListFilter) (q values) {
	q.add("status", f.Status)
	q.add("before", f.Before)
	q.addLimit(f.Limit)
	return q
}

// runAsk returns a POST to an object of a run.
func runAsk(ref ckpt.RunRef, body any, key string, raw []rawMember, parts ...string) (*ask, error) {
	path, err := runPath(ref, parts...)
	if err != nil {
		return nil, err
	}
	a, err := keyedAsk(path, body, key)
	if err == nil && mayBeKept(parts) {
		a.agent, a.run = ref.Agent, runOrMain(ref.Run)
	}
	if err != nil || len(raw) == 0 {
		return a, err
	}
	a.body, err = withRaw(body, raw...)
	return a, err
}

// rawMember is a member of a JSON object whose value is sent unchanged.
type rawMember struct {
	name  string
	value []byte
}

// withRaw writes an object and adds members that encoding/json would rewrite.
func withRaw(v any, raw ...rawMember) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, ckpt.Wrap(ckpt.CodeInvalid, err, "the request cannot be written as JSON")
	}
	for _, m := range raw {
		if len(m.value) == 0 {
			continue
		}
		if err := jsontext.Check(m.value); err != nil {
			return nil, ckpt.Errorf(ckpt.CodeInvalid, "the %s is not JSON: %v", m.name, err)
		}
		b = bytes.TrimSuffix(b, []byte("}"))
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(append(append(append(b, '"'), m.name...), `":`...), m.value...), '}')
	}
	return b, nil
}

// fetchKeyed makes a call whose answer can be a repetition of its first reply.
func fetchKeyed[T any](ctx context.Context, c *Client, a *ask, err error) (*T, bool, error) {
	if err != nil {
		return nil, false, err
	}
	v := new(T)
	ans, err := c.fetch(ctx, a, v)
	if err != nil {
		return nil, false, err
	}
	return v, ans.replayed(), nil
}

// fetchPart reads a run, or the named part of it.
func fetchPart[T any](ctx context.Context, c *Client, ref ckpt.RunRef, part string, q values) (*T, error) {
	path, err := runPath(ref)
	if err != nil {
		return nil, err
	}
	if part != "" {
		path += "/" + part
	}
	v := new(T)
	_, err = c.fetch(ctx, &ask{method: http.MethodGet, path: path, query: q, repeatable: true}, v)
	return orNil(v, err)
}

// fetchWithState makes a call whose answer contains a state, and cuts the state out
// unchanged.
func (c *Client) fetchWithState(ctx context.Context, a *ask, v any) (ans *answer, state []byte, err error) {
	if ans, err = c.do(ctx, a); err != nil {
		return nil, nil, err
	}
	body, state, err := cutState(ans)
	if err != nil {
		return nil, nil, misunderstood(err, a.write)
	}
	return ans, state, readAnswer(body, v, a.write)
}
