package ipc

import (
	"bytes"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TypeGraph is the content type of framed bodies: a line of JSON that lists the values
// and their lengths, and then the bytes of the values, one after the other.
const TypeGraph = "application/vnd.ckptsidecar.graph"

// The headers of framed bodies.
type (
	GraphPutHead struct {
		Thread     string           `json:"thread"`
		NS         string           `json:"ns"`
		Parent     ckpt.Ref         `json:"parent"`
		Checkpoint ckpt.JSON        `json:"checkpoint"`
		Metadata   ckpt.JSON        `json:"metadata"`
		Values     []GraphValueHead `json:"values"`
		Carry      []string         `json:"carry"`
	}
	GraphValueHead struct {
		Channel string `json:"channel"`
		Type    string `json:"type"`
		Length  int64  `json:"length"`
	}
	GraphWritesHead struct {
		Thread     string           `json:"thread"`
		NS         string           `json:"ns"`
		Checkpoint string           `json:"checkpoint"`
		Task       string           `json:"task"`
		Path       string           `json:"path"`
		Writes     []GraphWriteHead `json:"writes"`
	}
	GraphWriteHead struct {
		Idx     int64  `json:"idx"`
		Channel string `json:"channel"`
		Type    string `json:"type"`
		Length  int64  `json:"length"`
	}
	GraphPageHead struct {
		Tuples []GraphTupleHead `json:"tuples"`
		Next   ckpt.Ref         `json:"next"`
	}
	GraphTupleHead struct {
		Thread     string            `json:"thread"`
		NS         string            `json:"ns"`
		ID         string            `json:"id"`
		Parent     ckpt.Ref          `json:"parent"`
		Checkpoint ckpt.JSON         `json:"checkpoint"`
		Metadata   ckpt.JSON         `json:"metadata"`
		Values     []GraphStoredHead `json:"values"`
		Writes     []GraphTaskHead   `json:"writes"`
		Sends      []GraphBytesHead  `json:"sends"`
	}
	GraphStoredHead struct {
		Channel string    `json:"channel"`
		Version ckpt.JSON `json:"version"`
		Type    string    `json:"type"`
		Length  int64     `json:"length"`
		Tag     string    `json:"tag,omitempty"`
		Held    bool      `json:"held,omitempty"`
	}
	GraphTaskHead struct {
		Task    string `json:"task"`
		Idx     int64  `json:"idx"`
		Channel string `json:"channel"`
		Type    string `json:"type"`
		Length  int64  `json:"length"`
	}
	GraphBytesHead struct {
		Type   string `json:"type"`
		Length int64  `json:"length"`
	}
	GraphHistoryHead struct {
		Channels []GraphChannelHead `json:"channels"`
	}
	GraphChannelHead struct {
		Channel string          `json:"channel"`
		Seed    *GraphBytesHead `json:"seed"`
		Writes  []GraphTaskHead `json:"writes"`
	}
)

// The JSON bodies of calls about LangGraph's checkpoints.
type (
	GraphGetBody struct {
		Thread     string            `json:"thread"`
		NS         string            `json:"ns"`
		Checkpoint string            `json:"checkpoint"`
		Have       map[string]string `json:"have,omitempty"`
	}
	GraphListBody struct {
		Thread     *string              `json:"thread"`
		NS         *string              `json:"ns"`
		Checkpoint string               `json:"checkpoint"`
		Before     string               `json:"before"`
		Filter     map[string]ckpt.JSON `json:"filter"`
		Limit      *int                 `json:"limit"`
		Cursor     string               `json:"cursor"`
	}
	GraphHistoryBody struct {
		Thread     string   `json:"thread"`
		NS         string   `json:"ns"`
		Checkpoint string   `json:"checkpoint"`
		Channels   []string `json:"channels"`
	}
	GraphThreadBody struct {
		Thread string `json:"thread"`
	}
	GraphRunsBody struct {
		RunIDs []string `json:"run_ids"`
	}
)

// GraphFrame builds a framed body.
type GraphFrame struct {
	Parts [][]byte
	Size  int64
}

// Add appends bytes and returns their number.
func (f *GraphFrame) Add(data []byte) int64 {
	f.Parts = append(f.Parts, data)
	f.Size += int64(len(data))
	return int64(len(data))
}

// Head returns the first line.
func (f *GraphFrame) Head(v any) ([]byte, error) {
	var b bytes.Buffer
	err := EncodeJSON(&b, v) // it ends with a line feed, and contains no other
	return b.Bytes(), err
}

// Body returns the whole body.
func (f *GraphFrame) Body(v any) ([]byte, error) {
	head, err := f.Head(v)
	if err != nil {
		return nil, err
	}
	body := make([]byte, 0, int64(len(head))+f.Size)
	body = append(body, head...)
	for _, part := range f.Parts {
		body = append(body, part...)
	}
	return body, nil
}

// GraphRest is the bytes after a head that was read.
type GraphRest struct {
	data  []byte
	short bool // more bytes were requested than there are
}

// OpenFrame splits a body after its first line.
func OpenFrame(body []byte) (head []byte, rest *GraphRest, err error) {
	end := bytes.IndexByte(body, '\n')
	if end < 0 {
		return nil, nil, ckpt.Errorf(ckpt.CodeInvalid, "the body is wrong: it is one line of JSON, a line feed, and the bytes of the values")
	}
	return body[:end], &GraphRest{data: body[end+1:]}, nil
}

// Take returns the next value and removes it.
func (r *GraphRest) Take(length int64) []byte {
	if length < 0 || length > int64(len(r.data)) {
		r.short = true
		return nil
	}
	data := r.data[:length:length]
	r.data = r.data[length:]
	return data
}

// End checks that the lengths matched the body.
func (r *GraphRest) End() error {
	switch {
	case r.short:
		return ckpt.Errorf(ckpt.CodeInvalid, "the body is wrong: it ends before the values that its first line lists")
	case len(r.data) > 0:
		return ckpt.Errorf(ckpt.CodeInvalid, "the body is wrong: %d bytes follow the values that its first line lists", len(r.data))
	}
	return nil
}
