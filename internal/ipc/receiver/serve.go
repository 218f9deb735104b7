package receiver

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/otlp"
	"github.com/ckptsidecar/ckptsidecar/internal/otlp/observed"
)

// New creates a receiver. Serve starts it.
func New(o Options) *Receiver {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Content == "" {
		o.Content = observed.Hash
	}
	if o.Connections <= 0 {
		o.Connections = 256
	}
	if o.Strangers <= 0 {
		o.Strangers = 256
	}
	if o.TokenTime <= 0 {
		o.TokenTime = 5 * time.Second
	}
	r := &Receiver{
		opt: o, log: o.Log, owners: map[string]*owner{},
		all: semaphore.NewWeighted(allBytes), wrong: rate.Sometimes{Interval: recordedAfter},
	}
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

// Serve accepts the connections of a listener until Shutdown. Connections of
// internal/ipc/endpoint carry the caller's identity. All others need a token.
func (r *Receiver) Serve(ln net.Listener) error {
	err := r.http.Serve(&door{Listener: ln, receiver: r})
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Shutdown stops accepting and waits for the requests in progress. If ctx ends first, it
// cuts them off.
func (r *Receiver) Shutdown(ctx context.Context) error {
	err := r.http.Shutdown(ctx)
	if err != nil {
		_ = r.http.Close()
	}
	return err
}

// The paths that are served.
const (
	pathHTTP = "/v1/traces"
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
			"only traces are accepted here: POST %s, or gRPC; metrics and logs are not", pathHTTP)})
	}
}
