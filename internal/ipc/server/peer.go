package server

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
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

// door counts connections at accept and closes those that are far too many.
type door struct {
	net.Listener
	log    *slog.Logger
	limits Limits
	owners *owners
	peerOf func(net.Conn) (endpoint.Peer, bool)
	open   *atomic.Int64
}

// Accept waits for a connection whose caller is known and may connect.
func (d *door) Accept() (net.Conn, error) {
	for {
		inner, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := d.admit(inner); c != nil {
			return c, nil
		}
		_ = inner.Close()
	}
}

func (d *door) admit(inner net.Conn) *conn {
	peer, known := d.peerOf(inner)
	if !known || peer.Owner == "" {
		d.log.Error("a connection without an identity was closed: the listener is not one of endpoint's")
		return nil
	}
	o := d.owners.of(peer.Owner)
	all, own := int(d.open.Add(1)), int(o.connections.Add(1))
	gone := func() {
		d.open.Add(-1)
		o.connections.Add(-1)
	}
	if all > d.limits.Connections+spareConnections || own > d.limits.OwnerConnections+spareConnections {
		gone()
		return nil
	}
	caller := ckpt.Caller{Owner: peer.Owner, PID: peer.PID, Admin: peer.Admin}
	c := &conn{Conn: inner, caller: caller, owner: o, refused: d.tooMany(all, own), gone: gone}
	c.reading.Store(true)
	return c
}

func (d *door) tooMany(all, own int) error {
	switch {
	case own > d.limits.OwnerConnections:
		return &ckpt.Error{Code: ckpt.CodeQuota, RetryAfter: time.Second,
			Message: "you have too many connections open: close some, one is enough for a client"}
	case all > d.limits.Connections:
		return &ckpt.Error{Code: ckpt.CodeBusy, RetryAfter: time.Second, Message: "too many connections are open: try again"}
	}
	return nil
}
