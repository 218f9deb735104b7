//go:build unix

package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	agent "github.com/ckptsidecar/ckptsidecar/client"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// backlog is a spool from which each attempt sends one write before its time is over.
type backlog struct {
	writes int
	meet   func() // is called by each attempt
}

func (b *backlog) ReplayRun(ctx context.Context, _, _ string) (agent.Replayed, error) {
	if b.meet != nil {
		b.meet()
	}
	if b.writes == 0 {
		return agent.Replayed{}, nil
	}
	<-ctx.Done()
	b.writes--
	return agent.Replayed{Sent: 1}, ckpt.Wrap(ckpt.CodeBusy, ctx.Err(), "earlier writes still wait")
}

// fakeDaemon answers for a run, and writes down the end that is reported to it.
func fakeDaemon(t *testing.T, run ckpt.Run, reported chan<- string) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "d")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket = filepath.Join(dir, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.HasSuffix(r.URL.Path, "/end") {
			reported <- string(body)
		}
		w.Header().Set("Content-Type", ckpt.ContentTypeJSON)
		_ = json.NewEncoder(w).Encode(run)
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return socket
}

func TestALongBacklogDelaysExecOnly(t *testing.T) {
	const writes = 7
	reported := make(chan string, 10)
	socket := fakeDaemon(t, ckpt.Run{Agent: "a", Run: "main", Epoch: 1, Status: ckpt.RunRunning}, reported)
	supervised := func(b *backlog) *supervisor {
		app := &cli.App{Flags: &cli.Flags{JSON: true}, Stderr: io.Discard}
		c := &Command{Agent: "a", InRun: "main"}
		return &supervisor{a: app, cmd: c, client: &client.Client{Socket: socket}, sender: b, epoch: 1,
			signals: make(chan os.Signal, 1), pauses: c.pauses()}
	}
	t.Run("before the claim", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := supervised(&backlog{writes: writes})
			defer s.client.Close()
			if plan, err := s.claim(t.Context(), 1); err != nil || plan == nil {
				t.Errorf("%+v, %v", plan, err)
			}
		})
	})
	t.Run("before the end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := supervised(&backlog{writes: writes})
			defer s.client.Close()
			s.reportEnd(t.Context(), &outcome{died: time.Now(), beaten: time.Now()})
		})
		select {
		case how := <-reported:
			if !strings.Contains(how, string(ckpt.RunCompleted)) {
				t.Errorf("the end is %s", how)
			}
		default:
			t.Error("the end was not reported")
		}
	})
	t.Run("stopped before the claim", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := &backlog{writes: 1 << 30}
			s := supervised(b)
			b.meet = func() { s.signals <- os.Interrupt }
			began := time.Now()
			plan, err := s.claim(t.Context(), 1)
			var exit *cli.ExitError
			if plan != nil || !errors.As(err, &exit) || exit.Code != cli.ExitTryLater || time.Since(began) != stopRetry {
				t.Errorf("%+v, %v, after %s", plan, err, time.Since(began))
			}
		})
	})
	t.Run("stopped before the end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := &backlog{writes: 1 << 30}
			s := supervised(b)
			b.meet = func() { s.signals <- os.Interrupt }
			began := time.Now()
			s.reportEnd(t.Context(), &outcome{died: time.Now(), beaten: time.Now()})
			if time.Since(began) != stopRetry {
				t.Errorf("it took %s", time.Since(began))
			}
		})
	})
}
