package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
)

// nameOfSpans is the name under which systemd passes the socket for OpenTelemetry spans:
// FileDescriptorName= of its unit.
const nameOfSpans = "otlp"

// takeSocket takes the sockets that systemd passed to this process, if any. It does this first, so
// that the clients that wait in them can be told about any later problem.
func (s *service) takeSocket(context.Context) error {
	named, err := inherited()
	if err != nil {
		return fmt.Errorf("the socket from systemd cannot be used: %w", err)
	}
	var all []net.Listener
	for name, list := range named {
		if name == nameOfSpans {
			s.inheritedSpans = append(s.inheritedSpans, list...)
		} else {
			all = append(all, list...)
		}
	}
	if len(all) > 1 || len(s.inheritedSpans) > 1 {
		n := len(all) + len(s.inheritedSpans)
		for _, l := range append(all, s.inheritedSpans...) {
			_ = l.Close()
		}
		s.inheritedSpans = nil
		return fmt.Errorf("systemd passed %d sockets: the daemon uses one, and one with FileDescriptorName=%s, "+
			"so a socket unit may have only one ListenStream=",
			n, nameOfSpans)
	}
	if len(all) == 1 {
		s.inherited = all[0]
	}
	return nil
}

// openEndpoint uses the inherited socket, or creates one.
func (s *service) openEndpoint(ctx context.Context) error {
	c := &s.daemon.Config
	options := s.endpointOptions(c.Socket)
	var err error
	if s.inherited == nil {
		s.endpoint = c.Socket
		s.listener, err = endpoint.Listen(ctx, options)
		return err
	}
	s.endpoint = s.inherited.Addr().String()
	if s.endpoint != c.Socket {
		s.log.Warn("the setting socket is ignored, because systemd passed another socket", "setting", c.Socket, "handed", s.endpoint)
	}
	s.listener, err = endpoint.FromListener(s.inherited, options)
	return err
}

// refuseTime is how long a daemon that cannot start answers the clients that wait in an inherited
// socket.
const refuseTime = 250 * time.Millisecond

// RefuseCallers is for a program that cannot even start a daemon. It answers the clients that wait
// at the socket from systemd, if there is one.
func RefuseCallers() {
	s := &service{log: slog.New(slog.DiscardHandler)}
	if s.takeSocket(context.Background()) == nil && s.inherited != nil {
		s.refuseCallers()
		_ = s.inherited.Close()
	}
}

// refuseCallers answers the clients that wait in the inherited socket of a daemon that cannot
// start. Without an answer, they would make systemd start the daemon again and again, and would
// wait for something that only a person can fix.
func (s *service) refuseCallers() {
	if s.inherited == nil {
		return
	}
	problem := ipc.NewProblem(&ckpt.Error{Code: ckpt.CodeBusy,
		Message: "the daemon cannot start, and its log says why: an administrator finds the log with `ckptsidecar service status`"})
	body, _ := json.Marshal(problem)
	server := &http.Server{ReadHeaderTimeout: refuseTime, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("Retry-After", "10")
		w.Header().Set("Connection", "close")
		w.WriteHeader(problem.Status)
		_, _ = w.Write(body)
	})}
	told := make(chan struct{})
	time.AfterFunc(refuseTime, func() {
		defer close(told)
		ctx, cancel := context.WithTimeout(context.Background(), refuseTime)
		defer cancel()
		_ = server.Shutdown(ctx) // a client without an answer by then finds the connection closed
	})
	if err := server.Serve(s.inherited); !errors.Is(err, http.ErrServerClosed) {
		s.log.Warn("the clients that wait at the socket could not be told", "error", err)
	}
	<-told
}
