package receiver

import (
	"net"
	"sync"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// conn is an accepted connection. Its caller is empty if the kernel names none. It counts to one owner, or to the strangers
// while it has shown no token.
type conn struct {
	net.Conn
	receiver *Receiver
	caller   ckpt.Caller

	mu     sync.Mutex
	owner  *owner
	closed bool
}

// belongsTo counts the connection to an owner, unless it already counts to one. It says whether the owner may have one more.
func (c *conn) belongsTo(o *owner) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owner != nil || c.closed {
		return true
	}
	r, most := c.receiver, int64(c.receiver.opt.Connections)
	if all := r.connections.Add(1); o.connections.Add(1) > most || all > 4*most {
		o.connections.Add(-1)
		r.connections.Add(-1)
		r.closed.Add(1)
		return false
	}
	c.owner = o
	r.strangers.remove(c)
	return true
}

// Close releases the connection's place.
func (c *conn) Close() error {
	c.mu.Lock()
	if !c.closed && c.owner != nil {
		c.owner.connections.Add(-1)
		c.receiver.connections.Add(-1)
	}
	c.closed = true
	c.mu.Unlock()
	c.receiver.strangers.remove(c)
	return c.Conn.Close()
}

// strangers are the connections to the port that have shown no token, oldest first. One that shows none in time is closed. If
// there are too many, the oldest is closed, so a new one always has a place.
type strangers struct {
	mu    sync.Mutex
	conns []stranger
}

type stranger struct {
	conn  *conn
	timer *time.Timer
}

func (s *strangers) add(c *conn) {
	s.mu.Lock()
	var oldest *conn
	if len(s.conns) >= c.receiver.opt.Strangers {
		oldest = s.conns[0].conn
	}
	s.conns = append(s.conns, stranger{c, time.AfterFunc(c.receiver.opt.TokenTime, func() { c.turnAway() })})
	s.mu.Unlock()
	if oldest != nil {
		oldest.turnAway()
	}
}

// remove takes a connection off the list, and says whether it was there.
func (s *strangers) remove(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, one := range s.conns {
		if one.conn == c {
			one.timer.Stop()
			s.conns = append(s.conns[:i], s.conns[i+1:]...)
			return true
		}
	}
	return false
}

// turnAway closes a connection that is still a stranger's.
func (c *conn) turnAway() {
	if c.receiver.strangers.remove(c) {
		c.receiver.closed.Add(1)
		_ = c.Close()
	}
}
