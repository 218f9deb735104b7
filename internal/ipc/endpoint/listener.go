package endpoint

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// The pause after an accept that failed for a temporary reason. It is short at first, because the next descriptor
// can be free in a moment. It is limited, because a listener that sleeps for long looks dead.
const (
	firstPause = 5 * time.Millisecond
	longPause  = time.Second
)

// listener is the part of accepting that all platforms share.
type listener struct {
	inner    net.Listener
	addr     net.Addr
	identify func(net.Conn) (PeerConn, error)
	report   func(error)
	// withdraw makes the endpoint unreachable before the inner listener closes. release gives up its lock
	// afterwards. Both can be nil.
	withdraw func() error
	release  func() error
	reach    func() error // whether callers can still find it; nil if that cannot change

	done chan struct{}
	once sync.Once
	err  error
}

func newListener(inner net.Listener, o Options, identify func(net.Conn) (PeerConn, error)) *listener {
	l := &listener{inner: inner, addr: inner.Addr(), identify: identify, report: o.Report, done: make(chan struct{})}
	if l.report == nil {
		l.report = func(error) {}
	}
	return l
}

// Accept waits for a peer that may connect. Its connections are PeerConns.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.next()
		if err != nil {
			return nil, err
		}
		pc, err := l.identify(c)
		if err == nil {
			return pc, nil
		}
		// A peer that cannot be identified must not end the service for the other peers.
		_ = c.Close()
		l.report(err)
	}
}

// next accepts, and retries after temporary errors.
func (l *listener) next() (net.Conn, error) {
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		c, err := l.inner.Accept()
		if err == nil || !passing(err) {
			return c, err
		}
		l.report(fmt.Errorf("accept failed, next try in %v: %w", pause, err))
		if !l.sleep(pause) {
			return nil, net.ErrClosed
		}
	}
}

// sleep returns false if the listener was closed in the meantime.
func (l *listener) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-l.done:
		return false
	case <-t.C:
		return true
	}
}

// Close removes the endpoint, if it still belongs to this listener, and stops accepting. Accepted connections
// stay open.
func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.done)
		for _, step := range []func() error{l.withdraw, l.inner.Close, l.release} {
			if step == nil {
				continue
			}
			if err := step(); err != nil && l.err == nil {
				l.err = err
			}
		}
	})
	return l.err
}

// Reachable returns why callers can no longer find the endpoint of a listener of this package, or nil if they
// can.
func Reachable(l net.Listener) error {
	if ours, ok := l.(*listener); ok && ours.reach != nil {
		return ours.reach()
	}
	return nil
}

// Addr returns the endpoint's path as configured.
func (l *listener) Addr() net.Addr { return l.addr }
