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
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
)

// ownDaemon is a daemon of this command's own: a process of its own, with its
// files in a folder that nobody else knows. It stops when its standard input
// closes, so it does not outlive this command however that ends.
type ownDaemon struct {
	folder string // for the socket and the log
	db     string
	socket string
	cmd    *exec.Cmd
	alive  io.Closer
	log    *bytes.Buffer
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
	d := &ownDaemon{
		folder: folder, db: filepath.Join(dir, "ckpt.db"), socket: ownSocket(folder),
		log: &bytes.Buffer{}, ended: make(chan error, 1),
	}
	if err := d.start(ctx, a); err != nil {
		_ = d.stop()
		d.remove()
		return nil, err
	}
	return d, nil
}

func (d *ownDaemon) start(ctx context.Context, a *app) error {
	config := filepath.Join(d.folder, "config.toml") // so that nobody's own settings count
	if err := os.WriteFile(config, nil, 0o600); err != nil {
		return err
	}
	var err error
	d.cmd, err = a.again(context.WithoutCancel(ctx), "serve", "--while-stdin",
		"--db", d.db, "--socket", d.socket, "--config", config)
	if err != nil {
		return err
	}
	d.cmd.Stderr = d.log
	if d.alive, err = d.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := d.cmd.Start(); err != nil {
		return err
	}
	go func() { d.ended <- d.cmd.Wait() }()
	return d.waitReady(ctx)
}

func (d *ownDaemon) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	for {
		if d.client().Health(ctx) == nil {
			return nil
		}
		select {
		case err := <-d.ended:
			d.ended <- err
			return fmt.Errorf("the daemon ended at once: %v: %s", err, strings.TrimSpace(d.log.String()))
		case <-ctx.Done():
			return errors.New("the daemon did not become ready in 15 seconds")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (d *ownDaemon) client() *ipc.Client { return &ipc.Client{Socket: d.socket} }

// stop ends the daemon cleanly, or after ten seconds the hard way.
func (d *ownDaemon) stop() error {
	if d.cmd == nil || d.cmd.Process == nil {
		return nil
	}
	_ = d.alive.Close()
	select {
	case err := <-d.ended:
		return err
	case <-time.After(10 * time.Second):
		_ = d.cmd.Process.Kill()
		return errors.New("the daemon did not stop in 10 seconds and was killed")
	}
}

// remove takes away the folder, and with it what lies in it.
func (d *ownDaemon) remove() { _ = os.RemoveAll(d.folder) }

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
