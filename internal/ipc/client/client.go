package client

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// Client speaks to a daemon. The zero Client is ready to use: it tries the endpoints that
// endpoint.Dial tries. It is safe for concurrent use, keeps one connection alive, and
// sends requests over it in order. It must not be copied after first use.
//
// Its errors are *ckpt.Error, or *endpoint.DialError if no daemon answers at the
// endpoint. A write without an answer has the outcome unknown.
type Client struct {
	Socket string // where the daemon listens; "" tries the candidates
	Owner  string // whose agents calls are about; "" for the caller's own. Only administrators can set it

	// Retry is how long a call is repeated while the daemon is busy or away, if a
	// repetition cannot do anything twice. 0 means never. Saves are always safe to
	// repeat, because their id is their idempotency key.
	Retry time.Duration

	// Whole makes Save send every state whole. Otherwise the client keeps a copy of the
	// last large state of each run, at most 64 MiB in total.
	Whole bool

	// Absent, if set, is called when no daemon can be reached. It returns whether one can
	// be reached now.
	Absent func(context.Context, error) bool
	Outbox Outbox // nil for none: then a write that cannot be sent is an error

	bases   baseCache
	once    sync.Once
	line    *line           // the connection for requests
	streams *http.Transport // exports, imports and followers have one connection each, so that they delay nothing
}

// Close closes the connection. The client may be used again.
func (c *Client) Close() {
	c.init()
	c.line.close()
	c.streams.CloseIdleConnections()
}

func (c *Client) init() {
	c.once.Do(func() {
		c.line = newLine(c.dial)
		c.streams = c.transport()
		c.streams.DisableKeepAlives = true
	})
}
