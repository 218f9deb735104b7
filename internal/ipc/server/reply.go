package server

import (
	"bytes"
	"encoding/base64"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
)

// buffers hold the small JSON of replies.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func getBuffer() *bytes.Buffer { return buffers.Get().(*bytes.Buffer) }

func putBuffer(b *bytes.Buffer) {
	if b.Cap() > 64<<10 {
		return // one long list must not stay in memory
	}
	b.Reset()
	buffers.Put(b)
}

// giveTime gives the client time to take n bytes.
func (c *call) giveTime(n int64) {
	// A connection that accepts no deadline anymore is gone, and the write reports that.
	_ = c.conn.SetWriteDeadline(time.Now().Add(c.server.limits.timeFor(n)))
}

// head begins a reply of n bytes.
func (c *call) head(status int, contentType []string, n int64) {
	h := c.Header()
	h["Content-Type"] = contentType
	h["Content-Length"] = []string{strconv.FormatInt(n, 10)}
	c.giveTime(n)
	c.WriteHeader(status)
}

// send answers with a body that is in memory. It ignores write errors, because a
// client that left cannot be told.
func (c *call) send(status int, contentType []string, body []byte) {
	c.head(status, contentType, int64(len(body)))
	_, _ = c.Write(body)
}

// sendJSON answers with one of the product's types.
func (c *call) sendJSON(status int, v any) error {
	b := getBuffer()
	defer putBuffer(b)
	if err := ipc.EncodeJSON(b, v); err != nil {
		return err
	}
	c.send(status, ipc.TypeJSON, b.Bytes())
	return nil
}

// sendSaved answers a save.
func (c *call) sendSaved(saved *ckpt.Saved) {
	c.markReplayed(saved.Replayed)
	if saved.AsSent {
		c.Header()[ipc.HeaderAsSent] = ipc.IsTrue
	}
	b := getBuffer()
	defer putBuffer(b)
	b.Write(appendSaved(b.AvailableBuffer(), saved))
	c.send(http.StatusCreated, ipc.TypeJSON, b.Bytes())
}

func (c *call) markReplayed(replayed bool) {
	if replayed {
		c.Header()[ipc.HeaderReplayed] = ipc.IsTrue
	}
}

// sendPage answers a list.
func (c *call) sendPage(p *ckpt.CheckpointPage) {
	b := getBuffer()
	defer putBuffer(b)
	b.Write(appendPage(b.AvailableBuffer(), p))
	c.send(http.StatusOK, ipc.TypeJSON, b.Bytes())
}

// sendPlan answers a resume.
func (c *call) sendPlan(plan *ckpt.Plan) error {
	const name = `,"checkpoint":`
	rest := struct {
		*ckpt.Plan
		Checkpoint *struct{} `json:"checkpoint,omitempty"` // hides the plan's own checkpoint, which is written last
	}{Plan: plan}
	if plan.Checkpoint == nil {
		return c.sendAround(rest, name+"null", nil)
	}
	return c.sendAround(rest, name, plan.Checkpoint)
}

// sendEnded answers the end of an operation.
func (c *call) sendEnded(ended *ckpt.OperationEnded) error {
	if ended.Restore == nil {
		return c.sendJSON(http.StatusOK, ended)
	}
	return c.sendAround(struct {
		*ckpt.OperationEnded
		Restore *struct{} `json:"restore,omitempty"`
	}{OperationEnded: ended}, `,"restore":`, ended.Restore)
}

// sendAround answers with an object. If there is a checkpoint, it is the last member,
// with its state.
func (c *call) sendAround(v any, name string, ck *ckpt.Checkpoint) error {
	b := getBuffer()
	defer putBuffer(b)
	if err := ipc.EncodeJSON(b, v); err != nil {
		return err
	}
	b.Truncate(b.Len() - len("}\n"))
	b.WriteString(name)
	if ck == nil {
		b.WriteString("}\n")
		c.send(http.StatusOK, ipc.TypeJSON, b.Bytes())
		return nil
	}
	b.Write(appendCheckpoint(b.AvailableBuffer(), ck))
	c.sendState(b, ck, "}}\n")
	return nil
}

// sendCheckpoint answers with a checkpoint, and with its state if the client
// asked for it.
func (c *call) sendCheckpoint(ck *ckpt.Checkpoint, state bool) {
	b := getBuffer()
	defer putBuffer(b)
	b.Write(appendCheckpoint(b.AvailableBuffer(), ck))
	const end = "}\n"
	if !state {
		b.WriteString(end)
		c.send(http.StatusOK, ipc.TypeJSON, b.Bytes())
		return
	}
	c.sendState(b, ck, end)
}

// sendState answers with the content of b, the unchanged state, and the end of
// the text.
func (c *call) sendState(b *bytes.Buffer, ck *ckpt.Checkpoint, end string) {
	value := stateValue(ck)
	b.WriteString(value.name)
	first := int64(b.Len())
	c.Header().Set(ipc.HeaderStateRange, strconv.FormatInt(first, 10)+"-"+strconv.FormatInt(first+value.size-1, 10))
	c.head(http.StatusOK, ipc.TypeJSON, first+value.size+int64(len(end)))
	_, _ = c.Write(b.Bytes())
	if value.write(c) == nil {
		_, _ = io.WriteString(c, end)
	}
}

// embedded is a state as a member of a JSON object.
type embedded struct {
	name  string
	size  int64
	write func(io.Writer) error
}

func stateValue(ck *ckpt.Checkpoint) embedded {
	if ckpt.IsJSON(ck.ContentType) && len(ck.State) > 0 {
		return embedded{`,"state":`, int64(len(ck.State)), func(w io.Writer) error {
			_, err := w.Write(ck.State)
			return err
		}}
	}
	size := int64(base64.StdEncoding.EncodedLen(len(ck.State))) + 2
	return embedded{`,"state_base64":`, size, func(w io.Writer) error { return writeBase64(w, ck.State) }}
}

func writeBase64(w io.Writer, state []byte) error {
	if _, err := io.WriteString(w, `"`); err != nil {
		return err
	}
	enc := base64.NewEncoder(base64.StdEncoding, w)
	if _, err := enc.Write(state); err != nil {
		return err
	}
	if err := enc.Close(); err != nil {
		return err
	}
	_, err := io.WriteString(w, `"`)
	return err
}

// stream is a reply of unknown length. It begins with its first byte, so an error before
// that is an ordinary error reply. The client must read each part in time.
type stream struct {
	c           *call
	contentType []string
}

// Write sends one part.
func (s stream) Write(p []byte) (int, error) {
	if s.c.status == 0 {
		s.c.Header()["Content-Type"] = s.contentType
	}
	s.c.giveTime(int64(len(p)))
	return s.c.Write(p)
}
