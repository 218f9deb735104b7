package endpoint

import (
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// script is a listener whose Accept returns the items of a list, then blocks.
type script struct {
	steps []any // net.Conn or error
	done  chan struct{}
}

func (s *script) Accept() (net.Conn, error) {
	if len(s.steps) == 0 {
		<-s.done
		return nil, net.ErrClosed
	}
	step := s.steps[0]
	s.steps = s.steps[1:]
	if err, ok := step.(error); ok {
		return nil, err
	}
	return step.(net.Conn), nil
}

func (s *script) Close() error   { close(s.done); return nil }
func (s *script) Addr() net.Addr { return &net.UnixAddr{Name: "script", Net: "unix"} }

type knownConn struct{ net.Conn }

func (knownConn) Peer() Peer { return Peer{Owner: "uid:7"} }

// knowing identifies only connections that are already a PeerConn.
func knowing(c net.Conn) (PeerConn, error) {
	if pc, ok := c.(PeerConn); ok {
		return pc, nil
	}
	return nil, refused("nobody knows it")
}

func scripted(report func(error), steps ...any) *listener {
	return newListener(&script{steps: steps, done: make(chan struct{})}, Options{Report: report}, knowing)
}

// acceptError has the form that package net gives to errors of accept.
func acceptError(errno error) error {
	return &net.OpError{Op: "accept", Net: "unix", Err: os.NewSyscallError("accept4", errno)}
}

func TestAcceptWaitsOutPassingErrors(t *testing.T) {
	for _, errno := range passingErrnos {
		t.Run(errno.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var reports []error
				e := acceptError(errno)
				l := scripted(func(err error) { reports = append(reports, err) }, e, e, e, knownConn{})
				start := time.Now()
				c, err := l.Accept()
				if err != nil {
					t.Fatalf("the listener died of a passing error: %v", err)
				}
				if p, ok := PeerOf(c); !ok || p.Owner != "uid:7" {
					t.Errorf("PeerOf = %v, %v", p, ok)
				}
				if took := time.Since(start); took != (5+10+20)*time.Millisecond {
					t.Errorf("pauses took %v, want 35ms: they must grow and not spin", took)
				}
				if len(reports) != 3 || !errors.Is(reports[0], errno) {
					t.Errorf("reports = %v, want three of %v", reports, errno)
				}
			})
		})
	}
}

func TestAcceptPauseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		steps := make([]any, 20, 21)
		for i := range steps {
			steps[i] = acceptError(passingErrnos[0])
		}
		l := scripted(nil, append(steps, knownConn{})...)
		start := time.Now()
		if _, err := l.Accept(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("20 failures took %v, no pause may exceed a second", took)
		}
	})
}

func TestAcceptReturnsLastingErrors(t *testing.T) {
	lasting := errors.New("the listener is gone")
	l := scripted(nil, lasting)
	if _, err := l.Accept(); !errors.Is(err, lasting) {
		t.Errorf("Accept = %v, want %v", err, lasting)
	}
}

func TestCloseEndsAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		steps := make([]any, 1000)
		for i := range steps {
			steps[i] = acceptError(passingErrnos[0])
		}
		l := scripted(nil, steps...)
		got := make(chan error)
		go func() { _, err := l.Accept(); got <- err }()
		time.Sleep(10*time.Second + 500*time.Millisecond)
		closed := time.Now()
		_ = l.Close()
		if err := <-got; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept = %v, want net.ErrClosed", err)
		}
		if waited := time.Since(closed); waited != 0 {
			t.Errorf("Accept slept on for %v after Close", waited)
		}
	})
}

func TestAcceptClosesWhomItCannotName(t *testing.T) {
	stranger, otherEnd := net.Pipe()
	var reports []error
	l := scripted(func(err error) { reports = append(reports, err) }, stranger, knownConn{})
	if _, err := l.Accept(); err != nil {
		t.Fatalf("the listener died of one peer: %v", err)
	}
	if _, err := otherEnd.Read(make([]byte, 1)); err == nil {
		t.Error("the connection without identity is still open")
	}
	if len(reports) != 1 || !errors.Is(reports[0], ErrRefused) {
		t.Errorf("reports = %v, want one ErrRefused", reports)
	}
}

func TestCloseTwice(t *testing.T) {
	l := scripted(nil)
	released := 0
	l.release = func() error { released++; return nil }
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Error(err)
	}
	if released != 1 {
		t.Errorf("released %d times", released)
	}
}

func TestPeerOfOtherConnections(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if p, ok := PeerOf(a); ok {
		t.Errorf("PeerOf an unknown connection = %v", p)
	}
}
