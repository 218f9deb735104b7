package server

import (
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// readState reads a body that is a state.
func (c *call) readState(r *ckpt.SaveRequest) (err error) {
	r.Lent = c.r.ContentLength >= 0
	r.State, err = c.readInto(c.server.store.Checkpoints.Memory, c.server.limits.MaxBody, 1)
	return err
}

// readBody reads the body into one buffer. factor is how many copies of the body will be
// in memory.
func (c *call) readBody(limit, factor int64) ([]byte, error) {
	return c.readInto(func(n int) []byte { return make([]byte, n) }, limit, factor)
}

func (c *call) readInto(memory func(int) []byte, limit, factor int64) ([]byte, error) {
	n := c.r.ContentLength
	switch {
	case c.r.Header["Content-Encoding"] != nil:
		// If the server accepted the encoded body, the state would not match its
		// Content-Type.
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "a body with a Content-Encoding is refused: "+
			"send it uncompressed, the daemon compresses what it stores")
	case n > limit:
		return nil, bodyTooLarge(limit)
	case n < 0:
		return c.readChunked(limit, factor)
	}
	if err := c.hold(&c.conn.owner.bytes, n*factor); err != nil {
		return nil, err
	}
	c.allow(n)
	buf := memory(int(n))
	if _, err := io.ReadFull(c.r.Body, buf); err != nil {
		return nil, bodyError(err, limit)
	}
	c.body = n
	return buf, nil
}

func bodyTooLarge(limit int64) error {
	return ckpt.Errorf(ckpt.CodeTooLarge, "the body is larger than the %d bytes that are allowed here", limit)
}

// allow gives the client time to send n bytes. net/http has already set a deadline that
// is long enough for a small body, and removes it when the body is read.
func (c *call) allow(n int64) {
	if n > c.server.limits.MinRate {
		_ = c.conn.SetReadDeadline(time.Now().Add(c.server.limits.timeFor(n)))
	}
}

// readChunked reads a body of unknown length. It waits for memory only before the first
// part: a request that holds memory and waits for more could block other requests that do
// the same.
func (c *call) readChunked(limit, factor int64) ([]byte, error) {
	const first = 32 << 10
	if err := c.hold(&c.conn.owner.bytes, first*factor); err != nil {
		return nil, err
	}
	body := c.paced(http.MaxBytesReader(c.ResponseWriter, c.r.Body, limit))
	buf := make([]byte, 0, first)
	for {
		n, err := body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err == io.EOF {
			c.body = int64(len(buf))
			return buf, nil
		}
		if err != nil {
			return nil, bodyError(err, limit)
		}
		if len(buf) < cap(buf) {
			continue
		}
		if buf, err = c.grow(buf, factor); err != nil {
			return nil, err
		}
	}
}

// grow doubles the buffer if memory is available without waiting.
func (c *call) grow(buf []byte, factor int64) ([]byte, error) {
	share, more := &c.conn.owner.bytes, int64(cap(buf))
	if !share.tryAcquire(more * factor) {
		return nil, share.busy()
	}
	c.keep(share, more*factor)
	return slices.Grow(buf, int(more))[:len(buf):int(2*more)], nil
}

// paced returns a reader of the body that requires the client to send at least at
// Limits.MinRate.
func (c *call) paced(body io.Reader) io.Reader {
	return &pacedReader{body: body, conn: c.conn, limits: &c.server.limits, began: time.Now()}
}

type pacedReader struct {
	body   io.Reader
	conn   net.Conn
	limits *Limits
	began  time.Time
	read   int64
}

// Read waits only for the time that the bytes read so far have earned.
func (r *pacedReader) Read(p []byte) (int, error) {
	_ = r.conn.SetReadDeadline(r.began.Add(r.limits.timeFor(r.read)))
	n, err := r.body.Read(p)
	r.read += int64(n)
	return n, err
}

// bodyError describes what was wrong with a body. It never contains a part of the body.
func bodyError(err error, limit int64) error {
	var tooLarge *http.MaxBytesError
	var network net.Error
	switch {
	case errors.As(err, &tooLarge):
		return bodyTooLarge(limit)
	case errors.As(err, &network) && network.Timeout():
		return ckpt.Errorf(ckpt.CodeInvalid, "the body arrived too slowly")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return ckpt.Errorf(ckpt.CodeInvalid, "the body ended early")
	}
	return ckpt.Wrap(ckpt.CodeInvalid, err, "the body could not be read")
}

// decode reads a JSON body strictly into v. It ignores the Content-Type, because only
// JSON is accepted.
func (c *call) decode(v any) error { return c.decodeUpTo(maxSmallBody, v) }

// decodeUpTo is decode for bodies that carry values of an agent.
func (c *call) decodeUpTo(limit int64, v any) error {
	body, err := c.readBody(limit, 2)
	if err != nil {
		return err
	}
	return decodeBody(body, v)
}

// decodeOptional is decode for calls in which no body means {}.
func (c *call) decodeOptional(limit int64, v any) error {
	body, err := c.readBody(limit, 2)
	if err != nil || len(body) == 0 {
		return err
	}
	return decodeBody(body, v)
}

func decodeBody(body []byte, v any) error {
	if err := jsontext.Decode(body, v); err != nil {
		return ckpt.Errorf(ckpt.CodeInvalid, "the body is wrong: %v", err)
	}
	return nil
}
