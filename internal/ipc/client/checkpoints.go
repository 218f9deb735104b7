package client

import (
	"bytes"
	"context"
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
)

// Checkpoint reads one checkpoint, and its state if state is true.
func (c *Client) Checkpoint(ctx context.Context, id string, state bool) (*ckpt.Checkpoint, error) {
	if err := ckpt.CheckID(id); err != nil {
		return nil, err
	}
	return c.fetchCheckpoint(ctx, &ask{method: http.MethodGet, path: "/v1/checkpoints/" + id, query: stateQuery(nil, state), repeatable: true})
}

// Latest reads the newest checkpoint that matches the filter. It uses the filter's Run
// and Kind, and Suspect if that is false.
func (c *Client) Latest(ctx context.Context, f ckpt.CheckpointFilter, state bool) (*ckpt.Checkpoint, error) {
	if err := ckpt.CheckAgentName(f.Agent); err != nil {
		return nil, err
	}
	var q values
	q.add("run", f.Run)
	q.add("kind", string(f.Kind))
	if f.Suspect != nil && !*f.Suspect {
		q.add("clean", "true")
	}
	return c.fetchCheckpoint(ctx, &ask{method: http.MethodGet, path: agentPath(f.Agent) + "/checkpoints/latest",
		query: stateQuery(q, state), repeatable: true})
}

func stateQuery(q values, state bool) values {
	if !state {
		q.add("state", "false")
	}
	return q
}

func (c *Client) fetchCheckpoint(ctx context.Context, a *ask) (*ckpt.Checkpoint, error) {
	ans, err := c.do(ctx, a)
	if err != nil {
		return nil, err
	}
	return readCheckpoint(ans, a.write)
}

// readCheckpoint cuts the state out of the answer and decodes the rest. This is as fast
// as copying, and does not change the bytes of the state.
func readCheckpoint(ans *answer, write bool) (*ckpt.Checkpoint, error) {
	body, state, err := cutState(ans)
	if err != nil {
		return nil, misunderstood(err, write)
	}
	ck := new(ckpt.Checkpoint)
	if err := readAnswer(body, ck, write); err != nil {
		return nil, err
	}
	ck.State = state
	return ck, nil
}

func cutState(ans *answer) (body, state []byte, err error) {
	where := ans.header.Get(ipc.HeaderStateRange)
	if where == "" {
		return ans.body, nil, nil
	}
	one, two, _ := strings.Cut(where, "-")
	first, err1 := strconv.Atoi(one)
	last, err2 := strconv.Atoi(two)
	if err1 != nil || err2 != nil || first < 1 || last < first || last >= len(ans.body) {
		return nil, nil, strconv.ErrRange
	}
	value := ans.body[first : last+1]
	body = slices.Concat(ans.body[:first], []byte("null"), ans.body[last+1:])
	if !bytes.HasSuffix(ans.body[:first], []byte(`"state_base64":`)) {
		return body, value, nil
	}
	state, err = base64.StdEncoding.AppendDecode([]byte{}, bytes.Trim(value, `"`))
	return body, state, err
}

// State reads the bytes of a state.
func (c *Client) State(ctx context.Context, id string) ([]byte, error) {
	if err := ckpt.CheckID(id); err != nil {
		return nil, err
	}
	ans, err := c.do(ctx, &ask{method: http.MethodGet, path: "/v1/checkpoints/" + id + "/state", repeatable: true})
	if err != nil {
		return nil, err
	}
	return ans.body, nil
}

// Checkpoints lists one page, newest first.
func (c *Client) Checkpoints(ctx context.Context, f ckpt.CheckpointFilter) (*ckpt.CheckpointPage, error) {
	if err := ckpt.CheckAgentName(f.Agent); err != nil {
		return nil, err
	}
	var q values
	q.add("run", f.Run)
	q.add("kind", string(f.Kind))
	addLabels(&q, f.Labels)
	if f.Suspect != nil {
		q.add("suspect", strconv.FormatBool(*f.Suspect))
	}
	q.add("before", f.Before)
	q.addLimit(f.Limit)
	page := new(ckpt.CheckpointPage)
	_, err := c.fetch(ctx, &ask{method: http.MethodGet, path: agentPath(f.Agent) + "/checkpoints", query: q, repeatable: true}, page)
	return orNil(page, err)
}

// Patch changes labels and pin of a checkpoint.
func (c *Client) Patch(ctx context.Context, id string, p ckpt.CheckpointPatch) (*ckpt.Checkpoint, error) {
	if err := ckpt.CheckID(id); err != nil {
		return nil, err
	}
	a, err := jsonAsk(http.MethodPatch, "/v1/checkpoints/"+id, p)
	if err != nil {
		return nil, err
	}
	a.because(ctx)
	a.repeatable = true
	return c.fetchCheckpoint(ctx, a)
}

// Delete removes a checkpoint.
func (c *Client) Delete(ctx context.Context, id string) (*ckpt.Removal, error) {
	if err := ckpt.CheckID(id); err != nil {
		return nil, err
	}
	removal := new(ckpt.Removal)
	a := &ask{method: http.MethodDelete, path: "/v1/checkpoints/" + id, write: true}
	a.because(ctx)
	_, err := c.fetch(ctx, a, removal)
	return orNil(removal, err)
}

// Diff compares the states of two checkpoints.
func (c *Client) Diff(ctx context.Context, from, to string) (*ckpt.Diff, error) {
	return c.diff(ctx, "/v1/checkpoints/", from, to)
}

func (c *Client) diff(ctx context.Context, path, from, to string) (*ckpt.Diff, error) {
	for _, id := range []string{from, to} {
		if err := ckpt.CheckID(id); err != nil {
			return nil, err
		}
	}
	d := new(ckpt.Diff)
	_, err := c.fetch(ctx, &ask{method: http.MethodGet, path: path + from + "/diff/" + to, repeatable: true}, d)
	return orNil(d, err)
}

// Restore returns the checkpoint to go back to, with its state, and records the restore.
func (c *Client) Restore(ctx context.Context, r ckpt.RestoreRequest) (ck *ckpt.Checkpoint, replayed bool, err error) {
	if err := ckpt.CheckAgentName(r.Agent); err != nil {
		return nil, false, err
	}
	a, err := keyedAsk(agentPath(r.Agent)+"/restore", r, r.IdempotencyKey)
	if err != nil {
		return nil, false, err
	}
	ans, err := c.do(ctx, a)
	if err != nil {
		return nil, false, err
	}
	ck, err = readCheckpoint(ans, true)
	return ck, ans.replayed(), err
}
