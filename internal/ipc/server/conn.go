package server

import (
	"context"
	"net"
	"sync"
	"sync/atomic"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// conn is an accepted connection and its caller. It is made once, at accept. No
// request can change it.
type conn struct {
	net.Conn
	caller  ckpt.Caller
	owner   *owner
	refused error // every request gets this: there are too many connections

	leave sync.Once
	gone  func()

	reading  atomic.Bool // the line and the headers of a request are being read
	headLock sync.Mutex
	head     int64 // bytes of them so far
	headHeld int64 // in the owner's share
	closed   bool
}

// Close gives the connection's place back.
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
