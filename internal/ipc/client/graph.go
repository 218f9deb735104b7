package client

import (
	"context"
	"net/http"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
)

// GraphPut puts a checkpoint of LangGraph on disk, or returns the channels whose values
// must be sent with it.
func (c *Client) GraphPut(ctx context.Context, r *ckpt.GraphPut) (*ckpt.GraphSaved, error) {
	f := new(ipc.GraphFrame)
	h := ipc.GraphPutHead{Thread: r.Thread, NS: r.NS, Parent: r.Parent, Checkpoint: r.Checkpoint, Metadata: r.Metadata,
		Carry: r.Carry, Values: make([]ipc.GraphValueHead, len(r.Values))}
	for i := range r.Values {
		v := &r.Values[i]
		h.Values[i] = ipc.GraphValueHead{Channel: v.Channel, Type: v.Type, Length: f.Add(v.Data)}
	}
	saved := new(ckpt.GraphSaved)
	return orNil(saved, c.sendGraph(ctx, r.Agent, "put", f, h, saved))
}

// GraphPutWrites puts the writes of one task on disk.
func (c *Client) GraphPutWrites(ctx context.Context, r *ckpt.GraphPutWrites) (*ckpt.GraphWritten, error) {
	f := new(ipc.GraphFrame)
	h := ipc.GraphWritesHead{Thread: r.Thread, NS: r.NS, Checkpoint: r.Checkpoint, Writes: make([]ipc.GraphWriteHead, len(r.Writes))}
	for i := range r.Writes {
		w := &r.Writes[i]
		if i > 0 && (w.Task != h.Task || w.Path != h.Path) {
			return nil, ckpt.Errorf(ckpt.CodeInvalid, "these are writes of several tasks: send the writes of each task in a request of their own")
		}
		h.Task, h.Path = w.Task, w.Path
		h.Writes[i] = ipc.GraphWriteHead{Idx: w.Idx, Channel: w.Channel, Type: w.Type, Length: f.Add(w.Data)}
	}
	written := new(ckpt.GraphWritten)
	return orNil(written, c.sendGraph(ctx, r.Agent, "put_writes", f, h, written))
}

func (c *Client) sendGraph(ctx context.Context, agent, method string, f *ipc.GraphFrame, head, answer any) error {
	if err := ckpt.CheckAgentName(agent); err != nil {
		return err
	}
	body, err := f.Body(head)
	if err != nil {
		return err
	}
	_, err = c.fetch(ctx, &ask{method: http.MethodPost, path: agentPath(agent) + "/graph/" + method, body: body,
		contentType: ipc.TypeGraph, write: true, repeatable: true}, answer)
	return err
}

// graphAsk returns a call with a JSON body. It can be repeated.
func graphAsk(agent, method string, body any, write bool) (*ask, error) {
	if err := ckpt.CheckAgentName(agent); err != nil {
		return nil, err
	}
	a, err := jsonAsk(http.MethodPost, agentPath(agent)+"/graph/"+method, body)
	if err != nil {
		return nil, err
	}
	a.write, a.repeatable = write, true
	return a, nil
}

// GraphTuples lists one page of checkpoints, newest first.
func (c *Client) GraphTuples(ctx context.Context, q ckpt.GraphQuery) (*ckpt.GraphPage, error) {
	b := ipc.GraphListBody{Thread: q.Thread, NS: q.NS, Checkpoint: q.Checkpoint, Before: q.Before, Filter: q.Filter, Cursor: q.Cursor}
	if q.Limit != 0 {
		b.Limit = &q.Limit
	}
	a, err := graphAsk(q.Agent, "list", b, false)
	if err != nil {
		return nil, err
	}
	return c.graphPage(ctx, a)
}

// GraphTuple reads one checkpoint, or the newest if none is named. It returns nil if
// there is none. Values whose tags are in the request are not sent again.
func (c *Client) GraphTuple(ctx context.Context, r ckpt.GraphGet) (*ckpt.GraphTuple, error) {
	a, err := graphAsk(r.Agent, "get", ipc.GraphGetBody{Thread: r.Thread, NS: r.NS, Checkpoint: r.Checkpoint, Have: r.Have}, false)
	if err != nil {
		return nil, err
	}
	page, err := c.graphPage(ctx, a)
	if err != nil || len(page.Tuples) == 0 {
		return nil, err
	}
	return &page.Tuples[0], nil
}

func (c *Client) graphPage(ctx context.Context, a *ask) (*ckpt.GraphPage, error) {
	var h ipc.GraphPageHead
	rest, err := c.fetchFrame(ctx, a, &h)
	if err != nil {
		return nil, err
	}
	page := &ckpt.GraphPage{Tuples: make([]ckpt.GraphTuple, len(h.Tuples)), Next: h.Next}
	for i := range h.Tuples {
		page.Tuples[i] = readTuple(rest, &h.Tuples[i])
	}
	if err := rest.End(); err != nil {
		return nil, misunderstood(err, false)
	}
	return page, nil
}

// fetchFrame makes a call whose answer has a frame.
func (c *Client) fetchFrame(ctx context.Context, a *ask, head any) (*ipc.GraphRest, error) {
	ans, err := c.do(ctx, a)
	if err != nil {
		return nil, err
	}
	line, rest, err := ipc.OpenFrame(ans.body)
	if err != nil {
		return nil, misunderstood(err, false)
	}
	return rest, readAnswer(line, head, false)
}

func readTuple(r *ipc.GraphRest, h *ipc.GraphTupleHead) ckpt.GraphTuple {
	t := ckpt.GraphTuple{GraphThread: ckpt.GraphThread{Thread: h.Thread, NS: h.NS}, ID: h.ID, Parent: h.Parent,
		Checkpoint: h.Checkpoint, Metadata: h.Metadata,
		Values: make([]ckpt.GraphValue, len(h.Values)), Sends: make([]ckpt.GraphBytes, len(h.Sends))}
	for i, v := range h.Values {
		t.Values[i] = ckpt.GraphValue{Channel: v.Channel, GraphBytes: ckpt.GraphBytes{Type: v.Type, Data: r.Take(v.Length)}, Tag: v.Tag, Held: v.Held}
		if string(v.Version) != "null" {
			t.Values[i].Version = v.Version
		}
	}
	t.Writes = readWrites(r, h.Writes)
	for i, s := range h.Sends {
		t.Sends[i] = ckpt.GraphBytes{Type: s.Type, Data: r.Take(s.Length)}
	}
	return t
}

func readWrites(r *ipc.GraphRest, heads []ipc.GraphTaskHead) []ckpt.GraphWrite {
	list := make([]ckpt.GraphWrite, len(heads))
	for i, w := range heads {
		list[i] = ckpt.GraphWrite{Task: w.Task, Idx: w.Idx, Channel: w.Channel, GraphBytes: ckpt.GraphBytes{Type: w.Type, Data: r.Take(w.Length)}}
	}
	return list
}

// GraphHistory reads the writes that make up delta channels.
func (c *Client) GraphHistory(ctx context.Context, q ckpt.GraphHistoryQuery) ([]ckpt.GraphHistory, error) {
	a, err := graphAsk(q.Agent, "history", ipc.GraphHistoryBody{Thread: q.Thread, NS: q.NS, Checkpoint: q.Checkpoint, Channels: q.Channels}, false)
	if err != nil {
		return nil, err
	}
	var h ipc.GraphHistoryHead
	rest, err := c.fetchFrame(ctx, a, &h)
	if err != nil {
		return nil, err
	}
	list := make([]ckpt.GraphHistory, len(h.Channels))
	for i, ch := range h.Channels {
		list[i].Channel = ch.Channel
		if ch.Seed != nil {
			list[i].Seed = &ckpt.GraphBytes{Type: ch.Seed.Type, Data: rest.Take(ch.Seed.Length)}
		}
		list[i].Writes = readWrites(rest, ch.Writes)
	}
	if err := rest.End(); err != nil {
		return nil, misunderstood(err, false)
	}
	return list, nil
}

// GraphDeleteThread removes all namespaces of a thread, for good.
func (c *Client) GraphDeleteThread(ctx context.Context, agent, thread string) (*ckpt.GraphRemoved, error) {
	return graphCall[ckpt.GraphRemoved](ctx, c, agent, "delete_thread", ipc.GraphThreadBody{Thread: thread})
}

// GraphDeleteRuns removes the checkpoints whose metadata has one of these run_ids.
func (c *Client) GraphDeleteRuns(ctx context.Context, agent string, runIDs []string) (*ckpt.GraphRemoved, error) {
	return graphCall[ckpt.GraphRemoved](ctx, c, agent, "delete_runs", ipc.GraphRunsBody{RunIDs: runIDs})
}

// GraphCopyThread copies a thread.
func (c *Client) GraphCopyThread(ctx context.Context, r ckpt.GraphCopy) (*ckpt.GraphCopied, error) {
	return graphCall[ckpt.GraphCopied](ctx, c, r.Agent, "copy_thread", r)
}

// GraphPrune shortens threads.
func (c *Client) GraphPrune(ctx context.Context, r ckpt.GraphPrune) (*ckpt.GraphRemoved, error) {
	return graphCall[ckpt.GraphRemoved](ctx, c, r.Agent, "prune", r)
}

func graphCall[T any](ctx context.Context, c *Client, agent, method string, body any) (*T, error) {
	a, err := graphAsk(agent, method, body, true)
	if err != nil {
		return nil, err
	}
	answer := new(T)
	_, err = c.fetch(ctx, a, answer)
	return orNil(answer, err)
}
