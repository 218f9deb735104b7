package ipc

import (
	"bytes"
	"encoding/json"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// typeGraph is the content type of framed bodies: a line of JSON that says what
// values come and how long each is, and then their bytes, one after the other.
const typeGraph = "application/vnd.ckptsidecar.graph"

// The headers of framed bodies.
type (
	graphPutHead struct {
		Thread     string           `json:"thread"`
		NS         string           `json:"ns"`
		Parent     ckpt.Ref         `json:"parent"`
		Checkpoint ckpt.JSON        `json:"checkpoint"`
		Metadata   ckpt.JSON        `json:"metadata"`
		Values     []graphValueHead `json:"values"`
		Carry      []string         `json:"carry"`
	}
	graphValueHead struct {
		Channel string `json:"channel"`
		Type    string `json:"type"`
		Length  int64  `json:"length"`
	}
	graphWritesHead struct {
		Thread     string           `json:"thread"`
		NS         string           `json:"ns"`
		Checkpoint string           `json:"checkpoint"`
		Task       string           `json:"task"`
		Path       string           `json:"path"`
		Writes     []graphWriteHead `json:"writes"`
	}
	graphWriteHead struct {
		Idx     int64  `json:"idx"`
		Channel string `json:"channel"`
		Type    string `json:"type"`
		Length  int64  `json:"length"`
	}
	graphPageHead struct {
		Tuples []graphTupleHead `json:"tuples"`
		Next   ckpt.Ref         `json:"next"`
	}
	graphTupleHead struct {
		Thread     string            `json:"thread"`
		NS         string            `json:"ns"`
		ID         string            `json:"id"`
		Parent     ckpt.Ref          `json:"parent"`
		Checkpoint ckpt.JSON         `json:"checkpoint"`
		Metadata   ckpt.JSON         `json:"metadata"`
		Values     []graphStoredHead `json:"values"`
		Writes     []graphTaskHead   `json:"writes"`
		Sends      []graphBytesHead  `json:"sends"`
	}
	graphStoredHead struct {
		Channel string    `json:"channel"`
		Version ckpt.JSON `json:"version"`
		Type    string    `json:"type"`
		Length  int64     `json:"length"`
	}
	graphTaskHead struct {
		Task    string `json:"task"`
		Idx     int64  `json:"idx"`
		Channel string `json:"channel"`
		Type    string `json:"type"`
		Length  int64  `json:"length"`
	}
	graphBytesHead struct {
		Type   string `json:"type"`
		Length int64  `json:"length"`
	}
	graphHistoryHead struct {
		Channels []graphChannelHead `json:"channels"`
	}
	graphChannelHead struct {
		Channel string          `json:"channel"`
		Seed    *graphBytesHead `json:"seed"`
		Writes  []graphTaskHead `json:"writes"`
	}
)

// graphFrame is a body that is being put together.
type graphFrame struct {
	parts [][]byte
	size  int64
}

// add puts bytes behind those that are there and answers how many they are.
func (f *graphFrame) add(data []byte) int64 {
	f.parts = append(f.parts, data)
	f.size += int64(len(data))
	return int64(len(data))
}

// head is the first line.
func (f *graphFrame) head(v any) ([]byte, error) {
	var b bytes.Buffer
	err := encodeJSON(&b, v) // which ends with a line feed, and has no other
	return b.Bytes(), err
}

// bytes is the whole body.
func (f *graphFrame) bytes(v any) ([]byte, error) {
	head, err := f.head(v)
	if err != nil {
		return nil, err
	}
	body := make([]byte, 0, int64(len(head))+f.size)
	body = append(body, head...)
	for _, part := range f.parts {
		body = append(body, part...)
	}
	return body, nil
}

// graphRest is the bytes behind a header that was read.
type graphRest struct {
	data  []byte
	short bool // more was asked for than there is
}

// openFrame cuts a body after its first line.
func openFrame(body []byte) (head []byte, rest *graphRest, err error) {
	end := bytes.IndexByte(body, '\n')
	if end < 0 {
		return nil, nil, ckpt.Errorf(ckpt.CodeInvalid, "the body is wrong: it is one line of JSON, a line feed, and the bytes of the values")
	}
	return body[:end], &graphRest{data: body[end+1:]}, nil
}

// take cuts the next value off.
func (r *graphRest) take(length int64) []byte {
	if length < 0 || length > int64(len(r.data)) {
		r.short = true
		return nil
	}
	data := r.data[:length:length]
	r.data = r.data[length:]
	return data
}

// end says whether the lengths were those of the body.
func (r *graphRest) end() error {
	switch {
	case r.short:
		return ckpt.Errorf(ckpt.CodeInvalid, "the body is wrong: it ends before the values that its first line names")
	case len(r.data) > 0:
		return ckpt.Errorf(ckpt.CodeInvalid, "the body is wrong: %d bytes come after the values that its first line names", len(r.data))
	}
	return nil
}

// readPutFrame reads a put.
func readPutFrame(body []byte) (*ckpt.GraphPut, error) {
	var h graphPutHead
	rest, err := readFrame(body, &h)
	if err != nil {
		return nil, err
	}
	p := &ckpt.GraphPut{GraphThread: ckpt.GraphThread{Thread: h.Thread, NS: h.NS}, Parent: h.Parent, Checkpoint: h.Checkpoint,
		Metadata: ckpt.JSON(object(json.RawMessage(h.Metadata))), Carry: h.Carry, Values: make([]ckpt.GraphValue, len(h.Values))}
	for i, v := range h.Values {
		p.Values[i] = ckpt.GraphValue{Channel: v.Channel, GraphBytes: ckpt.GraphBytes{Type: v.Type, Data: rest.take(v.Length)}}
	}
	return p, rest.end()
}

func readFrame(body []byte, head any) (*graphRest, error) {
	line, rest, err := openFrame(body)
	if err != nil {
		return nil, err
	}
	return rest, decodeBody(line, head)
}

// readWritesFrame reads writes of a task.
func readWritesFrame(body []byte) (*ckpt.GraphPutWrites, error) {
	var h graphWritesHead
	rest, err := readFrame(body, &h)
	if err != nil {
		return nil, err
	}
	p := &ckpt.GraphPutWrites{GraphThread: ckpt.GraphThread{Thread: h.Thread, NS: h.NS}, Checkpoint: h.Checkpoint, Writes: make([]ckpt.GraphWrite, len(h.Writes))}
	for i, w := range h.Writes {
		p.Writes[i] = ckpt.GraphWrite{Task: h.Task, Idx: w.Idx, Path: h.Path, Channel: w.Channel, GraphBytes: ckpt.GraphBytes{Type: w.Type, Data: rest.take(w.Length)}}
	}
	return p, rest.end()
}

// pageFrame makes the answer to a list.
func (f *graphFrame) page(p *ckpt.GraphPage) *graphPageHead {
	h := &graphPageHead{Tuples: make([]graphTupleHead, len(p.Tuples)), Next: p.Next}
	for i := range p.Tuples {
		h.Tuples[i] = f.tuple(&p.Tuples[i])
	}
	return h
}

func (f *graphFrame) tuple(t *ckpt.GraphTuple) graphTupleHead {
	h := graphTupleHead{Thread: t.Thread, NS: t.NS, ID: t.ID, Parent: t.Parent, Checkpoint: t.Checkpoint, Metadata: t.Metadata,
		Values: make([]graphStoredHead, len(t.Values)), Sends: make([]graphBytesHead, len(t.Sends))}
	for i := range t.Values {
		v := &t.Values[i]
		h.Values[i] = graphStoredHead{v.Channel, v.Version, v.Type, f.add(v.Data)}
	}
	h.Writes = f.writes(t.Writes)
	for i := range t.Sends {
		h.Sends[i] = graphBytesHead{t.Sends[i].Type, f.add(t.Sends[i].Data)}
	}
	return h
}

func (f *graphFrame) writes(writes []ckpt.GraphWrite) []graphTaskHead {
	list := make([]graphTaskHead, len(writes))
	for i := range writes {
		w := &writes[i]
		list[i] = graphTaskHead{w.Task, w.Idx, w.Channel, w.Type, f.add(w.Data)}
	}
	return list
}

func (f *graphFrame) history(histories []ckpt.GraphHistory) *graphHistoryHead {
	h := &graphHistoryHead{Channels: make([]graphChannelHead, len(histories))}
	for i := range histories {
		c := graphChannelHead{Channel: histories[i].Channel}
		if seed := histories[i].Seed; seed != nil {
			c.Seed = &graphBytesHead{seed.Type, f.add(seed.Data)}
		}
		c.Writes = f.writes(histories[i].Writes)
		h.Channels[i] = c
	}
	return h
}
