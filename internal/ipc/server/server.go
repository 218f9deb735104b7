package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
)

// Options are what a server is made of. Store is required.
type Options struct {
	Store   Store
	Runs    RunStore     // nil for none: then the calls about runs answer not_found
	Graphs  GraphStore   // nil for none: likewise for LangGraph's checkpointers
	Log     *slog.Logger // nil for none
	Metrics http.Handler // what /metrics answers, to administrators; nil for not_found
	Version string
	Limits  Limits

	// Ready, if set, is asked before the store whether the daemon is ready.
	Ready func(context.Context) error
	// Observe, if set, is told of every answered request. It must not block.
	Observe func(Observation)

	peerOf func(net.Conn) (endpoint.Peer, bool) // nil means endpoint.PeerOf; tests play other owners
}

// Observation is one answered request, for metrics.
type Observation struct {
	Route  string // "save", "restore", …; "" where no route was reached
	Status int
	Code   ckpt.Code // "" for success
	Took   time.Duration
	Body   int64 // bytes of the request's body, where it was read as a whole
}

// Stats are the server's own counters.
type Stats struct {
	Connections int64 // open now
	InWork      int64 // requests being answered now
	Answered    int64
	Failed      int64 // answered with a status of 500 and more
	Panics      int64
}

// Server answers requests. Make it with NewServer.
type Server struct {
	store   Store
	runs    RunStore
	graphs  GraphStore
	log     *slog.Logger
	metrics http.Handler
	version string
	limits  Limits
	ready   func(context.Context) error
	observe func(Observation)
	peerOf  func(net.Conn) (endpoint.Peer, bool)

	http   *http.Server
	mux    *http.ServeMux
	owners *owners

	connections, inWork, answered, failed, panics atomic.Int64

	stopping context.Context // ends when Shutdown begins: who follows is let go
	letGo    context.CancelFunc

	stop    sync.Once
	stopped chan struct{} // closed when Shutdown is done
	stopErr error
}

// NewServer makes a server that has yet to Serve.
func NewServer(o Options) *Server {
	limits := o.Limits.withDefaults()
	s := &Server{
		store: o.Store, runs: o.Runs, graphs: o.Graphs, log: o.Log, metrics: o.Metrics, version: o.Version, limits: limits,
		ready: o.Ready, observe: o.Observe, peerOf: o.peerOf,
		owners: newOwners(limits), stopped: make(chan struct{}),
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

func (noConn) SetReadDeadline(time.Time) error  { return nil }
func (noConn) SetWriteDeadline(time.Time) error { return nil }
