package client

import (
	"context"
	"encoding/json"
	"net/http"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// Drift reads the state of a run and its findings, newest first: the open ones,
// or all.
func (c *Client) Drift(ctx context.Context, f ckpt.DriftFilter) (*ckpt.DriftReport, error) {
	if err := (ckpt.RunRef{Agent: f.Agent, Run: f.Run}).Check(); err != nil {
		return nil, err
	}
	var q values
	q.add("run", f.Run)
	if f.All {
		q.add("all", "true")
	}
	if f.Line {
		q.add("timeline", "true")
	}
	q.add("before", f.Before)
	q.addLimit(f.Limit)
	report := new(ckpt.DriftReport)
	_, err := c.fetch(ctx, &ask{method: http.MethodGet, path: agentPath(f.Agent) + "/drift", query: q, repeatable: true}, report)
	return orNil(report, err)
}

// Evaluate reports in which recorded runs a rule would have warned.
func (c *Client) Evaluate(ctx context.Context, r ckpt.EvaluateRequest) (*ckpt.Evaluation, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	result := new(ckpt.Evaluation)
	_, err = c.fetch(ctx, &ask{method: http.MethodPost, path: "/v1/drift/evaluate", body: body,
		contentType: ckpt.ContentTypeJSON, repeatable: true}, result)
	return orNil(result, err)
}

// Feedback reports how often an agent's rules warned, how often people dismissed the
// findings, and which settings would have avoided those.
func (c *Client) Feedback(ctx context.Context, agent string) (*ckpt.DriftFeedback, error) {
	if err := ckpt.CheckAgentName(agent); err != nil {
		return nil, err
	}
	result := new(ckpt.DriftFeedback)
	_, err := c.fetch(ctx, &ask{method: http.MethodGet, path: agentPath(agent) + "/drift/feedback", repeatable: true}, result)
	return orNil(result, err)
}

// Finding reads one finding.
func (c *Client) Finding(ctx context.Context, id string) (*ckpt.Finding, error) {
	if err := ckpt.CheckID(id); err != nil {
		return nil, err
	}
	f := new(ckpt.Finding)
	_, err := c.fetch(ctx, &ask{method: http.MethodGet, path: "/v1/findings/" + id, repeatable: true}, f)
	return orNil(f, err)
}

// PostFinding records a finding that the agent itself reports.
func (c *Client) PostFinding(ctx context.Context, agent string, r ckpt.FindingRequest) (f *ckpt.PostedFinding, replayed bool, err error) {
	if err := ckpt.CheckAgentName(agent); err != nil {
		return nil, false, err
	}
	if err := wellformed.Finding(&r); err != nil {
		return nil, false, err
	}
	evidence := rawMember{"evidence", r.Evidence}
	r.Evidence = nil
	a, err := keyedAsk(agentPath(agent)+"/drift/findings", r, r.IdempotencyKey)
	if err == nil {
		a.body, err = withRaw(r, evidence)
	}
	return fetchKeyed[ckpt.PostedFinding](ctx, c, a, err)
}

// Dismiss says that a finding is wrong, or has been dealt with. Checkpoints that were
// suspect only because of it are clean again.
func (c *Client) Dismiss(ctx context.Context, r ckpt.DismissRequest) (f *ckpt.DismissedFinding, replayed bool, err error) {
	if err := r.Check(); err != nil {
		return nil, false, err
	}
	a, err := keyedAsk("/v1/findings/"+r.ID+"/dismiss", r, r.IdempotencyKey)
	return fetchKeyed[ckpt.DismissedFinding](ctx, c, a, err)
}
