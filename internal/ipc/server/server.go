package server

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// Options are the settings and dependencies of a server. Store is required.
type Options struct {
	Store   Store
	Log     *slog.Logger // nil for none
	Metrics http.Handler // the handler of /metrics, for administrators; nil for not_found
	Version string
	Limits  Limits

	// Settings, if set, returns the settings in use, for administrators.
	Settings func() []survey.Setting
	// Ready, if set, is asked before the store whether the daemon is ready.
	Ready func(context.Context) error
	// Durable, if set, is called after each save, step, operation and batch of events, and returns how safe it is. If
	// wait is not nil, the answer waits for it.
	Durable func(sc ckpt.Scope, agent, run string) (d ckpt.Durability, wait func(context.Context) (ckpt.Durability, error))
	// Before, if set, is asked before a run, a step or an operation begins, before a write without an epoch, which may begin
	// a run, and before a run is resumed.
	Before func(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, what Beginning) error
	// Began, if set, waits after the start or resume of a run until this host may work on it.
	Began func(ctx context.Context, sc ckpt.Scope, agent, run string) error
	// Lease, if set, adds the state of this host's lease in a fleet to the answer to a heartbeat.
	Lease func(sc ckpt.Scope, run *ckpt.Run)
	// Place, if set, adds the run's place in the fleet to the answer about a run.
	Place func(ctx context.Context, run *ckpt.Run) error
	// Fleet is the engine that the hosts share; nil if there is none.
	Fleet Fleet
	// Observe, if set, is called for every answered request. It must not block.
	Observe func(Observation)

	peerOf func(net.Conn) (endpoint.Peer, bool) // nil means endpoint.PeerOf; tests use it to simulate other owners
}

// Beginning is a kind of work that a host may begin only while no other host has the run.
type Beginning int

// The kinds of work.
const (
	BeginStep Beginning = iota
	BeginOperation
	BeginResume
	BeginRun
	BeginSave
)

// Observation is one answered request, for metrics.
type Observation struct {
	Route  string // "save", "restore", …; "" if the request reached no route
	Status int
	Code   ckpt.Code // "" for success
	Took   time.Duration
	Body   int64 // bytes of the request's body, if it was read as a whole
}

// Stats are the server's own counters.
type Stats struct {
	Connections int64 // open now
	InWork      int64 // requests being answered now
	Answered    int64
	Failed      int64 // answered with a status of 500 and more
	Panics      int64
}

// Server answers requests. Create it with NewServer.
type Server struct {
	store    Store
	log      *slog.Logger
	metrics  http.Handler
	version  string
	limits   Limits
	ready    func(context.Context) error
	observe  func(Observation)
	durable  func(ckpt.Scope, string, string) (ckpt.Durability, func(context.Context) (ckpt.Durability, error))
	before   func(context.Context, ckpt.Scope, ckpt.RunRef, Beginning) error
	began    func(context.Context, ckpt.Scope, string, string) error
	lease    func(ckpt.Scope, *ckpt.Run)
	place    func(context.Context, *ckpt.Run) error
	fleet    Fleet
	settings func() []survey.Setting
	peerOf   func(net.Conn) (endpoint.Peer, bool)

	http   *http.Server
	mux    *http.ServeMux
	owners *owners

	connections, inWork, answered, failed, panics atomic.Int64

	stopping context.Context // ends when Shutdown begins: then followers end
	letGo    context.CancelFunc

	stop    sync.Once
	stopped chan struct{} // closed when Shutdown is done
	stopErr error
}
