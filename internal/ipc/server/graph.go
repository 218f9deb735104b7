package server

import (
	"net/http"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
)

const graphPath = "/v1/agents/{agent}/graph"

func (c *call) putGraph() error {
	body, err := c.readBody(c.server.limits.MaxBody, 2)
	if err != nil {
		return err
	}
	r, err := readPutFrame(body)
	if err != nil {
		return err
	}
	r.Agent = c.agent
	if err := c.before(ckpt.RunRef{Agent: c.agent, Run: r.RunName()}, nil, BeginSave); err != nil {
		return err
	}
	ctx, cancel := c.writing(c.server.limits.WriteTimeout)
	defer cancel()
	saved, err := c.server.store.Graph.GraphPut(ctx, c.scope, r)
	if err != nil {
		return err
	}
	if err := c.durable(saved.Run, new(ckpt.Durability)); err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, saved)
}

func (c *call) putGraphWrites() error {
	body, err := c.readBody(c.server.limits.MaxBody, 2)
	if err != nil {
		return err
	}
	r, err := readWritesFrame(body)
	if err != nil {
		return err
	}
	r.Agent = c.agent
	if err := c.before(ckpt.RunRef{Agent: c.agent, Run: r.RunName()}, nil, BeginSave); err != nil {
		return err
	}
	ctx, cancel := c.writing(c.server.limits.WriteTimeout)
	defer cancel()
	written, err := c.server.store.Graph.GraphPutWrites(ctx, c.scope, r)
	if err != nil {
		return err
	}
	if err := c.durable(written.Run, new(ckpt.Durability)); err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, written)
}

func (c *call) getGraph() error {
	var b ipc.GraphGetBody
	if err := c.decode(&b); err != nil {
		return err
	}
	thread := ckpt.GraphThread{Thread: b.Thread, NS: b.NS}
	if err := c.bringThread(thread); err != nil {
		return err
	}
	if err := c.hold(&c.conn.owner.states, 1); err != nil {
		return err
	}
	ctx, cancel := c.reading(c.server.limits.ReadTimeout)
	defer cancel()
	tuple, err := c.server.store.Graph.GraphTuple(ctx, c.scope, ckpt.GraphGet{Agent: c.agent,
		GraphThread: thread, Checkpoint: b.Checkpoint, Have: b.Have})
	if err != nil {
		return err
	}
	page := &ckpt.GraphPage{}
	if tuple != nil {
		page.Tuples = []ckpt.GraphTuple{*tuple}
	}
	f := new(ipc.GraphFrame)
	return c.sendFrame(f, pageHead(f, page))
}

func (c *call) listGraph() error {
	var b ipc.GraphListBody
	if err := c.decode(&b); err != nil {
		return err
	}
	q := ckpt.GraphQuery{Agent: c.agent, Thread: b.Thread, NS: b.NS, Checkpoint: b.Checkpoint, Before: b.Before, Filter: b.Filter, Cursor: b.Cursor}
	if b.Limit != nil {
		if q.Limit = *b.Limit; q.Limit < 1 {
			return ckpt.Errorf(ckpt.CodeInvalid, "limit is %d: it must be at least 1", q.Limit)
		}
	}
	if q.Thread != nil {
		thread := ckpt.GraphThread{Thread: *q.Thread}
		if q.NS != nil {
			thread.NS = *q.NS
		}
		if err := c.bringThread(thread); err != nil {
			return err
		}
	}
	return c.sendTuples(q)
}

// bringThread lets the fleet move the run of a thread to this host, if another host has it. Only the owner's own graph
// moves a thread: an administrator who looks at it does not.
func (c *call) bringThread(t ckpt.GraphThread) error {
	if c.scope.Target != "" || t.Check() != nil { // the store answers what is wrong with a thread
		return nil
	}
	ctx, cancel := c.writing(c.server.limits.LongTimeout)
	defer cancel()
	return c.server.fleet.BringThread(ctx, c.scope, ckpt.RunRef{Agent: c.agent, Run: t.RunName()})
}

func (c *call) sendTuples(q ckpt.GraphQuery) error {
	if err := c.hold(&c.conn.owner.states, 1); err != nil {
		return err
	}
	ctx, cancel := c.reading(c.server.limits.ReadTimeout)
	defer cancel()
	page, err := c.server.store.Graph.GraphTuples(ctx, c.scope, q)
	if err != nil {
		return err
	}
	f := new(ipc.GraphFrame)
	return c.sendFrame(f, pageHead(f, page))
}

// sendFrame answers with a framed body.
func (c *call) sendFrame(f *ipc.GraphFrame, head any) error {
	line, err := f.Head(head)
	if err != nil {
		return err
	}
	c.head(http.StatusOK, []string{ipc.TypeGraph}, int64(len(line))+f.Size)
	_, err = c.Write(line)
	for i := 0; i < len(f.Parts) && err == nil; i++ {
		_, err = c.Write(f.Parts[i])
	}
	return nil // a client that hung up needs no answer
}

func (c *call) graphHistory() error {
	var b ipc.GraphHistoryBody
	if err := c.decode(&b); err != nil {
		return err
	}
	thread := ckpt.GraphThread{Thread: b.Thread, NS: b.NS}
	if err := c.bringThread(thread); err != nil {
		return err
	}
	if err := c.hold(&c.conn.owner.states, 1); err != nil {
		return err
	}
	ctx, cancel := c.reading(c.server.limits.ReadTimeout)
	defer cancel()
	histories, err := c.server.store.Graph.GraphHistory(ctx, c.scope, ckpt.GraphHistoryQuery{Agent: c.agent,
		GraphThread: thread, Checkpoint: b.Checkpoint, Channels: b.Channels})
	if err != nil {
		return err
	}
	f := new(ipc.GraphFrame)
	return c.sendFrame(f, historyHead(f, histories))
}

func (c *call) deleteGraphThread() error {
	var b ipc.GraphThreadBody
	if err := c.decode(&b); err != nil {
		return err
	}
	ctx, cancel := c.writing(c.server.limits.LongTimeout)
	defer cancel()
	removed, err := c.server.store.Graph.GraphDeleteThread(ctx, c.scope, c.agent, b.Thread)
	if err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, removed)
}

func (c *call) deleteGraphRuns() error {
	var b ipc.GraphRunsBody
	if err := c.decode(&b); err != nil {
		return err
	}
	ctx, cancel := c.writing(c.server.limits.LongTimeout)
	defer cancel()
	removed, err := c.server.store.Graph.GraphDeleteRuns(ctx, c.scope, c.agent, b.RunIDs)
	if err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, removed)
}

func (c *call) copyGraphThread() error {
	r := ckpt.GraphCopy{Agent: c.agent}
	if err := c.decode(&r); err != nil {
		return err
	}
	if err := c.hold(&c.conn.owner.states, 1); err != nil {
		return err
	}
	ctx, cancel := c.writing(c.server.limits.LongTimeout)
	defer cancel()
	copied, err := c.server.store.Graph.GraphCopyThread(ctx, c.scope, r)
	if err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, copied)
}

func (c *call) pruneGraph() error {
	r := ckpt.GraphPrune{Agent: c.agent}
	if err := c.decode(&r); err != nil {
		return err
	}
	ctx, cancel := c.writing(c.server.limits.LongTimeout)
	defer cancel()
	removed, err := c.server.store.Graph.GraphPrune(ctx, c.scope, r)
	if err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, removed)
}
