package client

import (
	"context"
	"errors"
	"fmt"
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

// startOnce keeps a client from starting daemons over and over.
type startOnce struct {
	mu   sync.Mutex
	last time.Time
}

// start starts the user's own daemon if err says that there is none. It answers
// whether a daemon answers now.
func (c *Client) start(ctx context.Context, err error) bool {
	var nobody *client.DialError
	if !errors.As(err, &nobody) || nobody.Stranger() {
		return false
	}
	c.started.mu.Lock()
	defer c.started.mu.Unlock()
	if time.Since(c.started.last) < startAgain {
		return c.answers(ctx)
	}
	c.started.last = time.Now()
	if err := c.serve(); err != nil {
		c.log().Error("no daemon could be started", "error", err)
		return false
	}
	until := time.Now().Add(startMost)
	for time.Now().Before(until) && ctx.Err() == nil {
		if c.answers(ctx) {
			return true
		}
		time.Sleep(startPause)
	}
	return false
}

func (c *Client) answers(ctx context.Context) bool {
	probe := &client.Client{Socket: c.Socket}
	defer probe.Close()
	return probe.Ready(ctx) == nil
}

// serve starts a daemon that outlives this process. If another daemon was
// faster, this one ends by itself.
func (c *Client) serve() error {
	path, err := exec.LookPath("ckptsidecar")
	if err != nil {
		return fmt.Errorf("ckptsidecar is not on the path: install it, or start it with \"ckptsidecar serve\": %w", err)
	}
	args := []string{"serve"}
	if socket := c.spool.endpoint(); socket != "" {
		args = append(args, "--socket", socket)
	}
	cmd := exec.Command(path, args...)
	cmd.SysProcAttr = detached()
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // not to leave a zombie
	return nil
}
