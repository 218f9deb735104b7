package server

import (
	"context"
	"net"
	"sync"
	"sync/atomic"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// conn is an accepted connection and its caller. It is created once, at accept. No
// request can change the caller.
type conn struct {
	net.Conn
	caller  ckpt.Caller
	owner   *owner
	refused error // every request gets this error: there are too many connections

	leave sync.Once
	gone  func()

	reading  atomic.Bool // the server is reading the line and the headers of a request
	headLock sync.Mutex
	head     int64 // the bytes of the line and headers so far
	headHeld int64 // in the owner's share
	closed   bool
}

// Close releases the connection's place.
func (c *conn) Close() error {
	c.leave.Do(func() {
		c.gone()
		c.headLock.Lock()
		c.closed = true
		c.headLock.Unlock()
		c.giveHead()
	})
	return c.Conn.Close()
}

// CloseWrite lets net/http end a reply so that the client can still read it.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}
