package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
)

// NewServer makes a server that has yet to Serve.
func NewServer(o Options) *Server {
	limits := o.Limits.withDefaults()
	s := &Server{
		store: o.Store, log: o.Log, metrics: o.Metrics, version: o.Version, limits: limits,
		ready: o.Ready, observe: o.Observe, durable: o.Durable, mayBegin: o.MayBegin, lease: o.Lease, place: o.Place, began: o.Began,
		fleet: o.Fleet, settings: o.Settings, peerOf: o.peerOf,
		owners: newOwners(limits), stopped: make(chan struct{}),
	}
	if s.fleet == nil {
		s.fleet = noFleet{}
	}
	s.stopping, s.letGo = context.WithCancel(context.Background())
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.peerOf == nil {
		s.peerOf = endpoint.PeerOf
	}
	s.mux = newMux()
	s.http = s.newHTTP()
	return s
}

func (s *Server) newHTTP() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:                      s,
		ConnContext:                  withConn,
		ConnState:                    nextHead,
		ErrorLog:                     slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		MaxHeaderBytes:               s.limits.MaxHeader,
		ReadHeaderTimeout:            s.limits.HeaderTimeout,
		ReadTimeout:                  s.limits.HeaderTimeout + s.limits.BodyGrace, // longer bodies get more in body.go
		WriteTimeout:                 s.limits.LongTimeout,                        // replies get less in reply.go
		IdleTimeout:                  s.limits.IdleTimeout,
		DisableGeneralOptionsHandler: true,
		Protocols:                    protocols,
	}
}

// Serve answers the connections of ln until ctx ends or Shutdown is called;
// then it waits for the requests in flight and answers nil. A server may serve
// several listeners.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	unhook := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limits.StopTimeout)
		defer cancel()
		_ = s.Shutdown(grace) // Serve answers with its error
	})
	defer unhook()
	err := s.http.Serve(&door{Listener: ln, log: s.log, limits: s.limits, owners: s.owners, peerOf: s.peerOf, open: &s.connections})
	if !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-s.stopped
	return s.stopErr
}

// Shutdown stops accepting, lets the requests in flight be answered and those
// who follow go, and then closes. When ctx ends first, what is still in flight is cut off and the
// context's error is the answer.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop.Do(func() {
		defer close(s.stopped)
		s.letGo()
		if s.stopErr = s.http.Shutdown(ctx); s.stopErr != nil {
			_ = s.http.Close()
		}
	})
	<-s.stopped
	return s.stopErr
}

// Stats are the server's counters now.
func (s *Server) Stats() Stats {
	return Stats{
		Connections: s.connections.Load(), InWork: s.inWork.Load(), Answered: s.answered.Load(),
		Failed: s.failed.Load(), Panics: s.panics.Load(),
	}
}

// HandlerFor answers requests as if caller had sent them, without a socket: to
// check the server against the description of its API, and for fuzzing.
func (s *Server) HandlerFor(caller ckpt.Caller) http.Handler {
	c := &conn{Conn: noConn{}, caller: caller, owner: s.owners.of(caller.Owner)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.ServeHTTP(w, r.WithContext(withConn(r.Context(), c)))
	})
}

// noConn is the connection that HandlerFor has not: deadlines mean nothing.
type noConn struct{ net.Conn }

func (noConn) SetReadDeadline(time.Time) error { return nil }

func (noConn) SetWriteDeadline(time.Time) error { return nil }

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{ResponseWriter: w, r: r, server: s, began: time.Now()}
	c.conn = r.Context().Value(connKey{}).(*conn)
	c.conn.headRead()
	c.scope.Caller = c.conn.caller
	s.inWork.Add(1)
	defer c.finish()
	if c.err = c.admit(); c.err == nil {
		c.hideLoneSlash()
		s.mux.ServeHTTP(c, c.r)
	}
}
