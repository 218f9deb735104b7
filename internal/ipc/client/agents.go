package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// Agents lists one page of agents.
func (c *Client) Agents(ctx context.Context, f ckpt.AgentFilter) (*ckpt.AgentPage, error) {
	var q values
	q.add("before", f.Before)
	q.addLimit(f.Limit)
	if f.States {
		q.add("states", "true")
	}
	page := new(ckpt.AgentPage)
	_, err := c.fetch(ctx, &ask{method: http.MethodGet, path: "/v1/agents", query: q, repeatable: true}, page)
	return orNil(page, err)
}

// Policy reads an agent's settings.
func (c *Client) Policy(ctx context.Context, agent string) (*ckpt.Policy, error) {
	if err := ckpt.CheckAgentName(agent); err != nil {
		return nil, err
	}
	p := new(ckpt.Policy)
	_, err := c.fetch(ctx, &ask{method: http.MethodGet, path: agentPath(agent) + "/policy", repeatable: true}, p)
	p.Fill()
	return orNil(p, err)
}

// SetPolicy replaces an agent's own policy by the values of p that differ from the
// defaults. The values equal to the defaults are left to the policies of the owner and of
// the daemon; SetOwnPolicy can set those too.
func (c *Client) SetPolicy(ctx context.Context, agent string, p ckpt.Policy) (*ckpt.Policy, error) {
	own, err := wellformed.PolicyText(p)
	if err != nil {
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "the policy cannot be written as JSON: %v", err)
	}
	return c.SetOwnPolicy(ctx, agent, own)
}

// SetOwnPolicy replaces an agent's own policy by a JSON object with the values that it
// sets, and returns the effective policy.
func (c *Client) SetOwnPolicy(ctx context.Context, agent string, own ckpt.JSON) (*ckpt.Policy, error) {
	if err := ckpt.CheckAgentName(agent); err != nil {
		return nil, err
	}
	return c.setPolicy(ctx, agent, own, "")
}

// setPolicy is SetOwnPolicy for a policy with this tag; "" accepts any policy.
func (c *Client) setPolicy(ctx context.Context, agent string, own ckpt.JSON, tag string) (*ckpt.Policy, error) {
	a, err := jsonAsk(http.MethodPut, agentPath(agent)+"/policy", own)
	if err != nil {
		return nil, err
	}
	a.repeatable = tag == "" // a second attempt would not match the tag
	a.because(ctx)
	if tag != "" {
		a.header = http.Header{"If-Match": {strconv.Quote(tag)}}
	}
	set := new(ckpt.Policy)
	_, err = c.fetch(ctx, a, set)
	set.Fill()
	return orNil(set, err)
}

// PolicyLayers reads an agent's policy with the source of each value. For ckpt.AllAgents,
// it reads the policy of the owner's agents that have none of their own.
func (c *Client) PolicyLayers(ctx context.Context, agent string) (*ckpt.PolicyLayers, error) {
	a := &ask{method: http.MethodGet, path: ownerPolicyPath, repeatable: true}
	if agent != ckpt.AllAgents {
		if err := ckpt.CheckAgentName(agent); err != nil {
			return nil, err
		}
		a.path = agentPath(agent) + "/policy"
		a.query.add("layers", "true")
	}
	layers := new(ckpt.PolicyLayers)
	_, err := c.fetch(ctx, a, layers)
	layers.Policy.Fill()
	return orNil(layers, err)
}

const ownerPolicyPath = "/v1/policy"

// SetOwnerPolicy replaces the owner's policy for all agents by a JSON object with the
// values that it sets.
func (c *Client) SetOwnerPolicy(ctx context.Context, set ckpt.JSON) (*ckpt.OwnerPolicySet, error) {
	a, err := jsonAsk(http.MethodPut, ownerPolicyPath, set)
	if err != nil {
		return nil, err
	}
	a.repeatable = true
	a.because(ctx)
	answer := new(ckpt.OwnerPolicySet)
	_, err = c.fetch(ctx, a, answer)
	answer.Policy.Fill()
	return orNil(answer, err)
}

// Erase removes an agent and everything it has, for good.
func (c *Client) Erase(ctx context.Context, agent string) (*ckpt.Erased, error) {
	if err := ckpt.CheckAgentName(agent); err != nil {
		return nil, err
	}
	erased := new(ckpt.Erased)
	_, err := c.fetch(ctx, &ask{method: http.MethodDelete, path: agentPath(agent), write: true}, erased)
	return orNil(erased, err)
}

// Prune applies the policies now, or reports what they would remove.
func (c *Client) Prune(ctx context.Context, r ckpt.PruneRequest, key string) (rep *ckpt.PruneReport, replayed bool, err error) {
	a, err := keyedAsk("/v1/prune", r, key)
	if err != nil {
		return nil, false, err
	}
	a.because(ctx)
	rep = new(ckpt.PruneReport)
	ans, err := c.fetch(ctx, a, rep)
	if err != nil {
		return nil, false, err
	}
	return rep, ans.replayed(), nil
}

// Export writes an agent as a SQLite file. After an error the file is cut off, and
// Import refuses it.
func (c *Client) Export(ctx context.Context, agent string, w io.Writer) error {
	if err := ckpt.CheckAgentName(agent); err != nil {
		return err
	}
	return c.ExportAgents(ctx, ckpt.ExportRequest{Agents: []string{agent}}, w)
}

// ExportAgents writes some agents as a SQLite file, or all agents, or one run of an agent. After
// an error the file is cut off, and Import refuses it.
func (c *Client) ExportAgents(ctx context.Context, r ckpt.ExportRequest, w io.Writer) error {
	if err := r.Check(); err != nil {
		return err
	}
	a := &ask{method: http.MethodGet, path: "/v1/export"}
	if len(r.Agents) == 1 {
		a.path = agentPath(r.Agents[0]) + "/export"
		a.query.add("run", r.Run)
	} else {
		a.query.add("agents", strings.Join(r.Agents, ","))
	}
	if r.NoFiles {
		a.query.add("files", "false")
	}
	body, err := c.stream(ctx, a, nil)
	if err != nil {
		return err
	}
	defer body.Close()
	from := &sourceReader{body: body}
	if _, err = io.Copy(w, from); err != nil && err == from.err {
		return broken(err, false)
	}
	return err // the error of w, nil for none
}

// sourceReader distinguishes errors of reading from errors of writing.
type sourceReader struct {
	body io.Reader
	err  error
}

// Read reads from the source and remembers its error.
func (r *sourceReader) Read(p []byte) (int, error) {
	n, err := r.body.Read(p)
	r.err = err
	return n, err
}

// Import reads what Export wrote, or rows of runs as lines of JSON.
func (c *Client) Import(ctx context.Context, r ckpt.ImportRequest, from io.Reader) (*ckpt.ImportReport, error) {
	a := &ask{method: http.MethodPost, path: "/v1/import", contentType: ipc.TypeBytes, write: true}
	a.query.add("agent", r.Agent)
	body, err := c.stream(ctx, a, from)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, broken(err, true)
	}
	report := new(ckpt.ImportReport)
	return orNil(report, readAnswer(text, report, true))
}

// Audit lists one page of the audit log, oldest or newest first.
func (c *Client) Audit(ctx context.Context, f ckpt.AuditFilter) (*ckpt.AuditPage, error) {
	var q values
	q.add("agent", f.Agent)
	q.add("run", f.Run)
	q.add("action", f.Action)
	q.add("who", f.Who)
	q.add("outcome", f.Outcome)
	q.add("since", f.Since.String())
	if f.Newest {
		q.add("newest", "true")
	}
	if f.After != 0 {
		q.add("after", strconv.FormatInt(f.After, 10))
	}
	if f.Before != 0 {
		q.add("before", strconv.FormatInt(f.Before, 10))
	}
	q.addLimit(f.Limit)
	page := new(ckpt.AuditPage)
	_, err := c.fetch(ctx, &ask{method: http.MethodGet, path: "/v1/audit", query: q, repeatable: true}, page)
	return orNil(page, err)
}

// Status returns the daemon's status.
func (c *Client) Status(ctx context.Context) (*ckpt.Status, error) {
	st := new(ckpt.Status)
	_, err := c.fetch(ctx, probe("/v1/status"), st)
	return orNil(st, err)
}

// Version returns the version of the daemon.
func (c *Client) Version(ctx context.Context) (*ckpt.Version, error) {
	v := new(ckpt.Version)
	_, err := c.fetch(ctx, probe("/v1/version"), v)
	return orNil(v, err)
}

// Health checks whether the daemon answers at all.
func (c *Client) Health(ctx context.Context) error {
	_, err := c.fetch(ctx, probe("/healthz"), new(json.RawMessage))
	return err
}

// Ready checks whether the daemon acknowledges saves. If it does not, the error has the
// reason.
func (c *Client) Ready(ctx context.Context) error {
	_, err := c.fetch(ctx, probe("/readyz"), new(json.RawMessage))
	return err
}

func probe(path string) *ask {
	return &ask{method: http.MethodGet, path: path, repeatable: true}
}

// ArchiveAudit makes the daemon move rows of the audit log from before a time into a file. It is for
// administrators. Repeating the call archives nothing more.
func (c *Client) ArchiveAudit(ctx context.Context, r ckpt.ArchiveRequest) (*ckpt.AuditArchived, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	a, err := jsonAsk(http.MethodPost, "/v1/audit/archive", r)
	if err != nil {
		return nil, err
	}
	a.repeatable = true
	done := new(ckpt.AuditArchived)
	_, err = c.fetch(ctx, a, done)
	return orNil(done, err)
}
