package server

import (
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
)

// door counts connections at accept and closes those far above the limit.
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
