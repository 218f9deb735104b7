package receiver

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/otlp"
)

// Store is what the receiver needs of the database.
type Store interface {
	Observe(ctx context.Context, sc ckpt.Scope, spans []ckpt.Span, content ckpt.SpanContent) (*ckpt.SpansObserved, error)
	// OwnerOfToken is whom a token names. Its error is denied for every other text.
	OwnerOfToken(ctx context.Context, token string) (owner string, err error)
	// Refused records a refusal in the audit log.
	Refused(ctx context.Context, sc ckpt.Scope, r ckpt.Refusal)
}

// Options are what a receiver is made of. Store is required.
type Options struct {
	Store           Store
	Log             *slog.Logger // nil for none
	Content         ckpt.SpanContent
	Now             func() time.Time // the wall clock; nil means the system's
	WritesPerSecond int              // requests of one owner; 0 for no limit
	Connections     int              // of one owner, and four times as many of all; 0 means 256
}

// The bounds of the work.
const (
	sentBytes     = 2 * otlp.MaxBody // memory for the bodies of one owner as they were sent
	ownerBytes    = 64 << 20         // and for what they are decoded to
	allBytes      = 4 * ownerBytes
	patience      = 8 * time.Second // exporters give up after 10
	readTime      = 30 * time.Second
	headerTime    = 10 * time.Second
	idleTime      = 10 * time.Minute
	recordedAfter = time.Second // a wrong token is recorded so often at most
)

// Receiver takes spans. Make it with New.
type Receiver struct {
	opt  Options
	log  *slog.Logger
	http *http.Server
	grpc http.Handler

	mu     sync.Mutex
	owners map[string]*owner
	all    *semaphore.Weighted
	wrong  rate.Sometimes // wrong tokens that are recorded

	connections                              atomic.Int64
	step, usage, ignored, duplicate, refused atomic.Int64
}

// owner is what one owner has in work.
type owner struct {
	sent, bytes *semaphore.Weighted // memory for bodies as they were sent, and decoded
	writes      *rate.Limiter
	connections atomic.Int64
}

// New makes a receiver that has yet to Serve.
func New(o Options) *Receiver {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Content == "" {
		o.Content = ckpt.SpanContentHash
	}
	if o.Connections <= 0 {
		o.Connections = 256
	}
	r := &Receiver{opt: o, log: o.Log, owners: map[string]*owner{}, all: semaphore.NewWeighted(allBytes), wrong: rate.Sometimes{Interval: recordedAfter}}
	r.grpc = newGRPC()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	r.http = &http.Server{
		Handler:                      r,
		ConnContext:                  withConn,
		ErrorLog:                     slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
		MaxHeaderBytes:               32 << 10,
		ReadHeaderTimeout:            headerTime,
		IdleTimeout:                  idleTime,
		DisableGeneralOptionsHandler: true,
		Protocols:                    protocols,
		HTTP2:                        &http.HTTP2Config{MaxConcurrentStreams: 64, PingTimeout: headerTime, SendPingTimeout: idleTime},
	}
	return r
}

// Serve takes the connections of a listener until Shutdown. Those of
// internal/ipc/endpoint carry the caller's identity; all others need a token.
func (r *Receiver) Serve(ln net.Listener) error {
	err := r.http.Serve(&door{Listener: ln, receiver: r})
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Shutdown stops accepting and waits for the requests in flight. When ctx ends
// first, they are cut off.
func (r *Receiver) Shutdown(ctx context.Context) error {
	err := r.http.Shutdown(ctx)
	if err != nil {
		_ = r.http.Close()
	}
	return err
}

// Counts say what became of the spans since the start. Which of them were late
// the store knows.
func (r *Receiver) Counts() ckpt.SpanCounts {
	return ckpt.SpanCounts{
		Step: r.step.Load(), Usage: r.usage.Load(), Ignored: r.ignored.Load(), Duplicate: r.duplicate.Load(), Refused: r.refused.Load(),
	}
}

func (r *Receiver) owner(name string) *owner {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.owners[name]
	if o == nil {
		limit := rate.Inf
		if n := r.opt.WritesPerSecond; n > 0 {
			limit = rate.Limit(n)
		}
		o = &owner{sent: semaphore.NewWeighted(sentBytes), bytes: semaphore.NewWeighted(ownerBytes), writes: rate.NewLimiter(limit, max(1, r.opt.WritesPerSecond))}
		r.owners[name] = o
	}
	return o
}

// The paths that are served.
const (
	pathHTTP = "/v1/traces"
	pathGRPC = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
)

// ServeHTTP answers one request.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	c := &call{receiver: r, w: w, r: req}
	switch req.URL.Path {
	case pathHTTP:
		reply, err := c.take(formOf(req))
		c.answer(reply, err)
	case pathGRPC:
		if !isGRPC(req) {
			c.answer(nil, unsupported("application/grpc"))
			return
		}
		c.reply, c.err = c.take(otlp.Binary)
		c.serveGRPC()
	default:
		c.answer(nil, &refusal{http.StatusNotFound, ckpt.Errorf(ckpt.CodeNotFound,
			"only traces are taken here: POST %s, or gRPC; metrics and logs are not", pathHTTP)})
	}
}
