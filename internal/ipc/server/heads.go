package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
)

// net/http reads the line and the headers of a request, and keeps the bytes until they
// are complete. This file limits that memory when the bytes arrive. As with bodies, each
// owner has a share of it.

var errHeadRefused = errors.New("too many bytes of unfinished requests")

// Read counts the bytes that arrive before a request has reached its handler.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.reading.Load() && !c.takeHead(int64(n)) {
		c.refuseHead()
		return 0, &net.OpError{Op: "read", Net: "unix", Err: errHeadRefused} // net/http answers other errors itself
	}
	return n, err
}

// takeHead counts bytes of a head, and returns whether there is room for them.
func (c *conn) takeHead(n int64) bool {
	c.headLock.Lock()
	defer c.headLock.Unlock()
	c.head += n
	need := (max(0, c.head-headFree) + headPart - 1) / headPart * headPart
	if need <= c.headHeld {
		return true
	}
	if c.closed || !c.owner.heads.tryAcquire(need-c.headHeld) {
		return false
	}
	c.headHeld = need
	return true
}

// headRead is called when a request reaches its handler. The following bytes are the
// body, which has other limits.
func (c *conn) headRead() { c.reading.Store(false) }

// giveHead releases the memory for the head of a request after its answer.
func (c *conn) giveHead() {
	c.headLock.Lock()
	defer c.headLock.Unlock()
	if c.headHeld > 0 {
		c.owner.heads.release(c.headHeld)
	}
	c.head, c.headHeld = 0, 0
}

// nextHead is called when a connection waits for its next request.
func nextHead(c net.Conn, state http.ConnState) {
	if c, ok := c.(*conn); ok && state == http.StateIdle {
		c.reading.Store(true)
	}
}

// refuseHead answers a request with an incomplete head, and closes the connection.
// Nothing was written for this request before.
func (c *conn) refuseHead() {
	p := ipc.NewProblem(&ckpt.Error{Code: ckpt.CodeQuota, RetryAfter: time.Second,
		Message: "you have too many bytes in requests that are incomplete or not answered yet: try again, and put large data into the state"})
	body, err := json.Marshal(p)
	if err != nil {
		return
	}
	_ = c.Conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = fmt.Fprintf(c.Conn, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nRetry-After: 1\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		p.Status, http.StatusText(p.Status), ipc.ProblemType, len(body), body)
}
