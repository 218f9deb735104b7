package pgtest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Relay stands between a host and its engine. It can cut connections in the middle, or
// hold up all traffic.
type Relay struct {
	server string
	port   int

	mu     sync.Mutex
	sent   [2]int // bytes to the server and from it, since the last Cut
	cut    [2]int // cut after this many bytes; 0 for never
	delay  time.Duration
	closed chan struct{} // closed while no traffic is held up
}

// The directions of a relay.
const (
	ToServer = iota
	FromServer
)

var errCut = errors.New("the relay has cut the connection")

// Relay starts a relay to the server. The relay ends with the test.
func (s *Server) Relay() *Relay {
	s.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	r := &Relay{server: fmt.Sprintf("127.0.0.1:%d", s.port), port: l.Addr().(*net.TCPAddr).Port, closed: make(chan struct{})}
	close(r.closed)
	s.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go r.serve(c)
		}
	}()
	return r
}

// URL returns the URL of a database of the server through the relay.
func (r *Relay) URL(database string) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable", r.port, database)
}

// Follow sends new connections to another server.
func (r *Relay) Follow(s *Server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.server = fmt.Sprintf("127.0.0.1:%d", s.port)
}

func (r *Relay) serve(client net.Conn) {
	r.mu.Lock()
	at := r.server
	r.mu.Unlock()
	server, err := net.Dial("tcp", at)
	if err != nil {
		_ = client.Close()
		return
	}
	var both sync.WaitGroup
	pass := func(way int, to, from net.Conn) {
		r.pass(way, to, from)
		_, _ = client.Close(), server.Close()
	}
	both.Go(func() { pass(ToServer, server, client) })
	both.Go(func() { pass(FromServer, client, server) })
	both.Wait()
}

func (r *Relay) pass(way int, to io.Writer, from io.Reader) {
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			n, cut := r.take(way, n)
			if _, err := to.Write(buffer[:n]); err != nil || cut != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// take waits while traffic is held up, and returns how many of n bytes pass.
func (r *Relay) take(way, n int) (int, error) {
	r.mu.Lock()
	closed, delay := r.closed, r.delay
	r.mu.Unlock()
	<-closed
	time.Sleep(delay)
	r.mu.Lock()
	defer r.mu.Unlock()
	left := r.cut[way] - r.sent[way]
	r.sent[way] += n
	if r.cut[way] > 0 && n >= left {
		return max(0, left), errCut
	}
	return n, nil
}

// Cut cuts each connection after n more bytes in a direction; 0 cuts none. It returns
// how many bytes passed in each direction since the last call.
func (r *Relay) Cut(way, n int) (toServer, fromServer int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	toServer, fromServer = r.sent[ToServer], r.sent[FromServer]
	r.sent, r.cut = [2]int{}, [2]int{}
	r.cut[way] = n
	return toServer, fromServer
}

// Hold holds up all traffic until letGo is called.
func (r *Relay) Hold(t testing.TB) (letGo func()) {
	held := make(chan struct{})
	r.mu.Lock()
	r.closed = held
	r.mu.Unlock()
	letGo = sync.OnceFunc(func() { close(held) })
	t.Cleanup(letGo)
	return letGo
}

// Slow delays each piece of data that passes.
func (r *Relay) Slow(by time.Duration) {
	r.mu.Lock()
	r.delay = by
	r.mu.Unlock()
}
