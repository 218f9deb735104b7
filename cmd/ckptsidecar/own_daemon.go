package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
)

// ownDaemon is a daemon of this command's own: a process of its own, with its
// files in a folder that nobody else knows. It stops when its standard input
// closes, so it does not outlive this command however that ends.
type ownDaemon struct {
	app    *app
	folder string // for the socket and the settings
	db     string
	socket string
	cmd    *exec.Cmd // nil while it does not run
	alive  io.Closer
	log    *daemonLog
	ended  chan error
}

// startDaemon starts one and waits until it is ready. dir is where the
// database goes, "" for the temporary folder too.
func (a *app) startDaemon(ctx context.Context, dir string) (*ownDaemon, error) {
	folder, err := os.MkdirTemp("", "ckptsidecar-")
	if err != nil {
		return nil, err
	}
	if dir == "" {
		dir = folder
	}
	d := &ownDaemon{app: a, folder: folder, db: filepath.Join(dir, "ckpt.db"), socket: ownSocket(folder)}
	if _, err := d.start(ctx); err != nil {
		_ = d.stop()
		d.remove()
		return nil, err
	}
	return d, nil
}

// start starts the process, the first time or after it was stopped or killed,
// and answers how long it took until it had answered that it is ready.
func (d *ownDaemon) start(ctx context.Context) (time.Duration, error) {
	config := filepath.Join(d.folder, "config.toml") // so that nobody's own settings count
	if err := os.WriteFile(config, nil, 0o600); err != nil {
		return 0, err
	}
	cmd, err := d.app.again(context.WithoutCancel(ctx), "serve", "--while-stdin",
		"--db", d.db, "--socket", d.socket, "--config", config)
	if err != nil {
		return 0, err
	}
	log, ended := newDaemonLog(), make(chan error, 1)
	cmd.Stderr = log
	if d.alive, err = cmd.StdinPipe(); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	d.cmd, d.log, d.ended = cmd, log, ended
	go func() { ended <- cmd.Wait() }()
	err = d.waitReady(ctx)
	return time.Since(began), err
}

// waitReady waits for the daemon's own word, which costs it nothing as asking
// it over and over would, and then asks once.
func (d *ownDaemon) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("the daemon did not become ready in a minute"))
	defer cancel()
	select {
	case <-d.log.ready:
		client := d.client()
		defer client.Close()
		return client.Ready(ctx)
	case err := <-d.ended:
		d.ended <- err
		return fmt.Errorf("the daemon ended at once: %v: %s", err, d.log)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (d *ownDaemon) client() *ipc.Client { return &ipc.Client{Socket: d.socket} }

// stop ends the daemon cleanly, or after ten seconds the hard way.
func (d *ownDaemon) stop() error {
	if d.cmd == nil {
		return nil
	}
	_ = d.alive.Close()
	defer func() { d.cmd = nil }()
	select {
	case err := <-d.ended:
		return err
	case <-time.After(10 * time.Second):
		_ = d.cmd.Process.Kill()
		return errors.New("the daemon did not stop in 10 seconds and was killed")
	}
}

// kill ends the daemon as a crash does: no handler runs, nothing is flushed.
func (d *ownDaemon) kill() {
	_ = d.cmd.Process.Kill()
	<-d.ended
	_ = d.alive.Close()
	d.cmd = nil
}

// remove takes away the folder, and with it what lies in it.
func (d *ownDaemon) remove() { _ = os.RemoveAll(d.folder) }

// daemonLog is what a daemon has said.
type daemonLog struct {
	ready chan struct{} // closes when it has said that it is ready

	mu   sync.Mutex
	text bytes.Buffer
	seen bool
}

func newDaemonLog() *daemonLog { return &daemonLog{ready: make(chan struct{})} }

func (l *daemonLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	if !l.seen && bytes.Contains(l.text.Bytes(), []byte(" msg=ready ")) {
		l.seen = true
		close(l.ready)
	}
	return len(p), nil
}

func (l *daemonLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.TrimSpace(l.text.String())
}

// again is this program as a child, without the settings of its environment.
func (a *app) again(ctx context.Context, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("this program cannot find itself, to start a child: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = slices.DeleteFunc(slices.Clone(a.environ), func(v string) bool { return strings.HasPrefix(v, "CKPTSIDECAR_") })
	return cmd, nil
}
