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

// The line and the headers of a request are read by net/http, which keeps what
// has come until they are whole. What they take is bounded here, where the
// bytes come in: an owner has a share of what all may have, as of bodies.
const (
	headFree = 8 << 10  // of each connection: what most requests need
	headPart = 16 << 10 // so much is asked for at once
)

var errHeadRefused = errors.New("too many bytes of unfinished requests")

// Read counts what comes in before a request has reached its handler.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.reading.Load() && !c.takeHead(int64(n)) {
		c.refuseHead()
		return 0, &net.OpError{Op: "read", Net: "unix", Err: errHeadRefused} // net/http answers others with an error of its own
	}
	return n, err
}

// takeHead counts bytes of a head, and says whether there is room for them.
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

// headRead is told when a request has reached its handler: what follows is body,
// for which there are other bounds.
func (c *conn) headRead() { c.reading.Store(false) }

// giveHead gives back what the head of a request has held, once it is answered.
func (c *conn) giveHead() {
	c.headLock.Lock()
	defer c.headLock.Unlock()
	if c.headHeld > 0 {
		c.owner.heads.release(c.headHeld)
	}
	c.head, c.headHeld = 0, 0
}

// nextHead is told when a connection waits for its next request.
func nextHead(c net.Conn, state http.ConnState) {
	if c, ok := c.(*conn); ok && state == http.StateIdle {
		c.reading.Store(true)
	}
}

// refuseHead answers a request whose head nobody has seen as a whole. Nothing
// was written on the connection for it before, and it is closed.
func (c *conn) refuseHead() {
	p := ipc.NewProblem(&ckpt.Error{Code: ckpt.CodeQuota, RetryAfter: time.Second,
		Message: "you have too many bytes in requests whose headers are not whole or not answered yet: try again, and put large things into the state"})
	body, err := json.Marshal(p)
	if err != nil {
		return
	}
	_ = c.Conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = fmt.Fprintf(c.Conn, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nRetry-After: 1\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		p.Status, http.StatusText(p.Status), ipc.ProblemType, len(body), body)
}
