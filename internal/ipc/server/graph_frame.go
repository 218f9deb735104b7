package server

import (
	"encoding/json"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
)

// readPutFrame reads a put.
func readPutFrame(body []byte) (*ckpt.GraphPut, error) {
	var h ipc.GraphPutHead
	rest, err := readFrame(body, &h)
	if err != nil {
		return nil, err
	}
	p := &ckpt.GraphPut{GraphThread: ckpt.GraphThread{Thread: h.Thread, NS: h.NS}, Parent: h.Parent, Checkpoint: h.Checkpoint,
		Metadata: ckpt.JSON(object(json.RawMessage(h.Metadata))), Carry: h.Carry, Values: make([]ckpt.GraphValue, len(h.Values))}
	for i, v := range h.Values {
		p.Values[i] = ckpt.GraphValue{Channel: v.Channel, GraphBytes: ckpt.GraphBytes{Type: v.Type, Data: rest.Take(v.Length)}}
	}
	return p, rest.End()
}

func readFrame(body []byte, head any) (*ipc.GraphRest, error) {
	line, rest, err := ipc.OpenFrame(body)
	if err != nil {
		return nil, err
	}
	return rest, decodeBody(line, head)
}

// readWritesFrame reads the writes of a task.
func readWritesFrame(body []byte) (*ckpt.GraphPutWrites, error) {
	var h ipc.GraphWritesHead
	rest, err := readFrame(body, &h)
	if err != nil {
		return nil, err
	}
	p := &ckpt.GraphPutWrites{GraphThread: ckpt.GraphThread{Thread: h.Thread, NS: h.NS}, Checkpoint: h.Checkpoint,
		Writes: make([]ckpt.GraphWrite, len(h.Writes))}
	for i, w := range h.Writes {
		p.Writes[i] = ckpt.GraphWrite{Task: h.Task, Idx: w.Idx, Path: h.Path, Channel: w.Channel,
			GraphBytes: ckpt.GraphBytes{Type: w.Type, Data: rest.Take(w.Length)}}
	}
	return p, rest.End()
}

// pageHead builds the answer to a list.
func pageHead(f *ipc.GraphFrame, p *ckpt.GraphPage) *ipc.GraphPageHead {
	h := &ipc.GraphPageHead{Tuples: make([]ipc.GraphTupleHead, len(p.Tuples)), Next: p.Next}
	for i := range p.Tuples {
		h.Tuples[i] = tupleHead(f, &p.Tuples[i])
	}
	return h
}

func tupleHead(f *ipc.GraphFrame, t *ckpt.GraphTuple) ipc.GraphTupleHead {
	h := ipc.GraphTupleHead{Thread: t.Thread, NS: t.NS, ID: t.ID, Parent: t.Parent, Checkpoint: t.Checkpoint, Metadata: t.Metadata,
		Values: make([]ipc.GraphStoredHead, len(t.Values)), Sends: make([]ipc.GraphBytesHead, len(t.Sends))}
	for i := range t.Values {
		v := &t.Values[i]
		h.Values[i] = ipc.GraphStoredHead{Channel: v.Channel, Version: v.Version, Type: v.Type, Length: f.Add(v.Data), Tag: v.Tag, Held: v.Held}
	}
	h.Writes = taskHeads(f, t.Writes)
	for i := range t.Sends {
		h.Sends[i] = ipc.GraphBytesHead{Type: t.Sends[i].Type, Length: f.Add(t.Sends[i].Data)}
	}
	return h
}

func taskHeads(f *ipc.GraphFrame, writes []ckpt.GraphWrite) []ipc.GraphTaskHead {
	list := make([]ipc.GraphTaskHead, len(writes))
	for i := range writes {
		w := &writes[i]
		list[i] = ipc.GraphTaskHead{Task: w.Task, Idx: w.Idx, Channel: w.Channel, Type: w.Type, Length: f.Add(w.Data)}
	}
	return list
}

func historyHead(f *ipc.GraphFrame, histories []ckpt.GraphHistory) *ipc.GraphHistoryHead {
	h := &ipc.GraphHistoryHead{Channels: make([]ipc.GraphChannelHead, len(histories))}
	for i := range histories {
		c := ipc.GraphChannelHead{Channel: histories[i].Channel}
		if seed := histories[i].Seed; seed != nil {
			c.Seed = &ipc.GraphBytesHead{Type: seed.Type, Length: f.Add(seed.Data)}
		}
		c.Writes = taskHeads(f, histories[i].Writes)
		h.Channels[i] = c
	}
	return h
}
