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

// NewServer creates a server. Serve starts it.
func NewServer(o Options) *Server {
	limits := o.Limits.withDefaults()
	s := &Server{
		store: o.Store, log: o.Log, metrics: o.Metrics, version: o.Version, limits: limits,
		ready: o.Ready, observe: o.Observe, durable: o.Durable, before: o.Before, lease: o.Lease, place: o.Place, began: o.Began,
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
		ReadTimeout:                  s.limits.HeaderTimeout + s.limits.BodyGrace, // body.go allows more for longer bodies
		WriteTimeout:                 s.limits.LongTimeout,                        // reply.go allows less for replies
		IdleTimeout:                  s.limits.IdleTimeout,
		DisableGeneralOptionsHandler: true,
		Protocols:                    protocols,
	}
}

// Serve answers the connections of ln until ctx ends or Shutdown is called. Then it waits for the
// requests in progress and returns nil. A server can serve several listeners.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	unhook := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limits.StopTimeout)
		defer cancel()
		_ = s.Shutdown(grace) // Serve returns its own error
	})
	defer unhook()
	err := s.http.Serve(&door{Listener: ln, log: s.log, limits: s.limits, owners: s.owners, peerOf: s.peerOf, open: &s.connections})
	if !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-s.stopped
	return s.stopErr
}

// Shutdown stops accepting, waits for the requests in progress, ends the calls of followers, and
// then closes. If ctx ends first, Shutdown cuts off the remaining requests and returns the
// context's error.
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

// Stats returns the current counters of the server.
func (s *Server) Stats() Stats {
	return Stats{
		Connections: s.connections.Load(), InWork: s.inWork.Load(), Answered: s.answered.Load(),
		Failed: s.failed.Load(), Panics: s.panics.Load(),
	}
}

// HandlerFor answers requests as if caller had sent them, without a socket. It is for checking
// the server against the description of its API, and for fuzzing.
func (s *Server) HandlerFor(caller ckpt.Caller) http.Handler {
	c := &conn{Conn: noConn{}, caller: caller, owner: s.owners.of(caller.Owner)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.ServeHTTP(w, r.WithContext(withConn(r.Context(), c)))
	})
}

// noConn is the connection for HandlerFor, which has none: deadlines have no effect.
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
