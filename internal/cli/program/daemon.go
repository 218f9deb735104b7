package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// Daemon is a private daemon of this process: a child process, with its files in a folder
// that no other program knows. It stops when its standard input closes, so it never
// outlives its parent, however the parent ends.
type Daemon struct {
	program  Program
	Folder   string    // of the socket and the settings
	Database string    // path of the file
	Socket   string    // path of the socket, or name of the pipe
	Cmd      *exec.Cmd // nil while it does not run
	alive    io.Closer
	log      *daemonLog
	ended    chan error
}

// StartDaemon starts a daemon and waits until it is ready. The database is in the folder
// dir; if dir is empty, it is in the temporary folder of the daemon.
func (p Program) StartDaemon(ctx context.Context, dir string) (*Daemon, error) {
	folder, err := os.MkdirTemp("", "ckptsidecar-")
	if err != nil {
		return nil, err
	}
	if dir == "" {
		dir = folder
	}
	d := &Daemon{program: p, Folder: folder, Database: filepath.Join(dir, "ckpt.db"), Socket: OwnSocket(folder)}
	if _, err := d.Start(ctx); err != nil {
		_ = d.Stop()
		d.Remove()
		return nil, err
	}
	return d, nil
}

// Start starts the process, for the first time or after it was stopped or killed. It
// returns how long it took until the daemon had answered that it is ready.
func (d *Daemon) Start(ctx context.Context) (time.Duration, error) {
	config := filepath.Join(d.Folder, "config.toml") // so that no user's own settings apply
	if err := os.WriteFile(config, nil, 0o600); err != nil {
		return 0, err
	}
	cmd := d.program.Command(context.WithoutCancel(ctx), "serve", "--while-stdin",
		"--db", d.Database, "--socket", d.Socket, "--config", config)
	log, ended := newDaemonLog(), make(chan error, 1)
	cmd.Stderr = log
	alive, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	d.alive = alive
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	d.Cmd, d.log, d.ended = cmd, log, ended
	go func() { ended <- cmd.Wait() }()
	err = d.waitReady(ctx)
	return time.Since(began), err
}

// waitReady waits until the daemon itself reports that it is ready, and then asks once.
// This costs the daemon nothing, unlike asking again and again.
func (d *Daemon) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("the daemon was not ready within a minute: read its log"))
	defer cancel()
	select {
	case <-d.log.ready:
		client := d.Client()
		defer client.Close()
		return client.Ready(ctx)
	case err := <-d.ended:
		d.ended <- err
		return fmt.Errorf("the daemon ended at once: %v: %s", err, d.log)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Client returns a new connection to the daemon.
func (d *Daemon) Client() *client.Client { return &client.Client{Socket: d.Socket} }

// Stop ends the daemon cleanly, or kills it after ten seconds.
func (d *Daemon) Stop() error {
	if d.Cmd == nil {
		return nil
	}
	_ = d.alive.Close()
	defer func() { d.Cmd = nil }()
	select {
	case err := <-d.ended:
		return err
	case <-time.After(10 * time.Second):
		_ = d.Cmd.Process.Kill()
		return errors.New("the daemon did not stop in 10 seconds and was killed")
	}
}

// Kill ends the daemon like a crash: no handler runs, nothing is flushed.
func (d *Daemon) Kill() {
	_ = d.Cmd.Process.Kill()
	<-d.ended
	_ = d.alive.Close()
	d.Cmd = nil
}

// Remove removes the folder with its content.
func (d *Daemon) Remove() { _ = os.RemoveAll(d.Folder) }

// daemonLog is the log output of a daemon.
type daemonLog struct {
	ready chan struct{} // closed when the daemon has reported that it is ready

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
