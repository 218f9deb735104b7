package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"sync"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

const (
	startMost  = 10 * time.Second
	startPause = 20 * time.Millisecond
	startAgain = 30 * time.Second
)

// starter starts the user's own daemon, at most once in startAgain.
type starter struct {
	probe  string // the socket that a Client names, to check whether a daemon answers there
	socket string // the endpoint that the user has chosen, "" if none
	log    func() *slog.Logger

	mu   sync.Mutex
	last time.Time
}

// start starts the user's own daemon if err says that there is none. It returns whether a
// daemon is ready now.
func (s *starter) start(ctx context.Context, err error) bool {
	var nobody *DialError
	if !errors.As(err, &nobody) || nobody.Stranger() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.last) < startAgain {
		return s.answers(ctx)
	}
	s.last = time.Now()
	if err := s.serve(); err != nil {
		s.log().Error("no daemon could be started", "error", err)
		return false
	}
	until := time.Now().Add(startMost)
	for time.Now().Before(until) && ctx.Err() == nil {
		if s.answers(ctx) {
			return true
		}
		time.Sleep(startPause)
	}
	return false
}

func (s *starter) answers(ctx context.Context) bool {
	probe := &client.Client{Socket: s.probe}
	defer probe.Close()
	return probe.Ready(ctx) == nil
}

// serve starts a daemon that outlives this process. If another daemon was
// faster, this one ends by itself.
func (s *starter) serve() error {
	path, err := exec.LookPath("ckptsidecar")
	if err != nil {
		return fmt.Errorf("ckptsidecar is not on the path: install it, or start it with \"ckptsidecar serve\": %w", err)
	}
	args := []string{"serve"}
	if s.socket != "" {
		args = append(args, "--socket", s.socket)
	}
	cmd := exec.Command(path, args...)
	cmd.SysProcAttr = detached()
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // avoids a zombie process
	return nil
}
