package daemon

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/receiver"
	"github.com/ckptsidecar/ckptsidecar/internal/otlp/observed"
)

// settleEvery is how often the daemon looks for spans that wait for the rest of their
// trace. settleIdle is the same for a daemon that receives no spans.
const (
	settleEvery = 500 * time.Millisecond
	settleIdle  = time.Minute
)

// openReceiver opens the socket and the port for OpenTelemetry spans, as the settings
// say.
func (s *service) openReceiver(ctx context.Context) error {
	c := &s.daemon.Config
	if !c.OTLP {
		for _, l := range s.inheritedSpans {
			s.log.Warn("systemd passed a socket for OpenTelemetry's spans, but otlp.enabled is not set", "socket", l.Addr().String())
			_ = l.Close()
		}
		return nil
	}
	if err := s.openSpanSocket(ctx); err != nil {
		return err
	}
	if c.OTLPLoopback != "" {
		listener, err := net.Listen("tcp", c.OTLPLoopback)
		if err != nil {
			return fmt.Errorf("otlp.loopback: %w", err)
		}
		s.spanListeners, s.otlp.Loopback = append(s.spanListeners, listener), listener.Addr().String()
	}
	if len(s.spanListeners) == 0 {
		s.log.Warn("otlp.enabled is set, but there is no endpoint to send spans to: set otlp.loopback too")
		return nil
	}
	s.otlp.Enabled, s.otlp.Content = true, c.OTLPContent
	return nil
}

// openSpanSocket takes the socket that systemd passed for spans, or creates one next to
// the daemon's own socket. If systemd created the daemon's socket, the daemon may be
// unable to write to its folder. In this case, the daemon starts anyway.
func (s *service) openSpanSocket(ctx context.Context) error {
	path := otlpSocket(s.daemon.Config.Socket)
	var listener net.Listener
	var err error
	switch {
	case len(s.inheritedSpans) > 0:
		path = s.inheritedSpans[0].Addr().String()
		listener, err = endpoint.FromListener(s.inheritedSpans[0], s.endpointOptions(path))
	case path == "":
		return nil
	default:
		listener, err = endpoint.Listen(ctx, s.endpointOptions(path))
	}
	if err != nil && s.inherited != nil && len(s.inheritedSpans) == 0 {
		s.log.Warn("there is no socket for OpenTelemetry's spans: let systemd pass one, as docs/OTLP.md describes", "name", nameOfSpans, "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	s.spanListeners, s.otlp.Socket = append(s.spanListeners, listener), path
	return nil
}

// otlp refuses settings that would let strangers in.
func (k *checking) otlp() {
	c := k.c
	if !slices.Contains(observed.Contents, observed.Content(c.OTLPContent)) {
		k.bad("otlp.content", "is %q: it must be hash, none or keep", c.OTLPContent)
	}
	if c.OTLPStrangers < 1 {
		k.bad("otlp.strangers", "is %d: it must be at least 1", c.OTLPStrangers)
	}
	k.between("otlp.token_time", c.OTLPTokenTime, 100*time.Millisecond, 5*time.Minute)
	if c.OTLPLoopback == "" {
		return
	}
	if !isLoopbackPort(c.OTLPLoopback) {
		k.bad("otlp.loopback", "is %q: give a loopback address with a port, such as 127.0.0.1:4318", c.OTLPLoopback)
	}
}

// isLoopbackPort reports whether a setting names a port that only this machine can reach.
func isLoopbackPort(address string) bool {
	at, err := netip.ParseAddrPort(address)
	return err == nil && at.Addr().IsLoopback()
}

// startReceiver serves what openReceiver has opened, and turns received spans into steps.
func (s *service) startReceiver(ctx context.Context) {
	every := settleIdle
	if len(s.spanListeners) > 0 {
		every = settleEvery
		c := &s.daemon.Config
		s.receiver = receiver.New(receiver.Options{
			Store: s.store, Log: s.log, Content: observed.Content(s.otlp.Content), Now: s.daemon.Now,
			WritesPerSecond: c.OwnerWritesPerSecond, Connections: c.OwnerConnections,
			Strangers: c.OTLPStrangers, TokenTime: time.Duration(c.OTLPTokenTime),
		})
		for _, listener := range s.spanListeners {
			go func() {
				if err := s.receiver.Serve(listener); err != nil {
					s.log.Error("OpenTelemetry's spans are no longer received", "address", listener.Addr().String(), "error", err)
				}
			}()
		}
		s.log.Info("receiving OpenTelemetry's spans", "socket", s.otlp.Socket, "loopback", s.otlp.Loopback, "content", string(s.otlp.Content))
	}
	s.workers.Go(func() { s.settle(ctx, every) })
}

// settle regularly turns received spans into steps.
func (s *service) settle(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if err := s.store.Settle(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("spans from OpenTelemetry wait longer than usual", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// stopReceiver stops receiving spans, and waits for the requests in progress.
func (s *service) stopReceiver(ctx context.Context) error {
	if s.receiver == nil {
		return nil
	}
	return s.receiver.Shutdown(ctx)
}

// closeReceiver closes what was opened and is not served yet.
func (s *service) closeReceiver() {
	for _, listener := range s.spanListeners {
		_ = listener.Close()
	}
}

// otlpStatus returns the receiver's part of the status.
func (s *service) otlpStatus() ckpt.OTLPStatus {
	status := s.otlp
	if s.receiver != nil {
		status.Spans, status.Closed = s.receiver.Counts(), s.receiver.Closed()
	}
	status.Spans.Late = s.store.LateSpans()
	return status
}

// endpointOptions returns the options for listening at a path.
func (s *service) endpointOptions(path string) endpoint.Options {
	c := &s.daemon.Config
	return endpoint.Options{
		Path:       path,
		Mode:       os.FileMode(c.SocketMode),
		Group:      c.SocketGroup,
		AdminGroup: c.AdminGroup,
		SingleUser: !c.MultiUser,
		Report:     func(err error) { s.log.Warn("a connection was not accepted", "error", err) },
	}
}

// beside returns the path of a socket in the folder of the daemon's own socket.
func beside(socket, name string) string {
	if socket == "" {
		return ""
	}
	return filepath.Join(filepath.Dir(socket), name)
}
