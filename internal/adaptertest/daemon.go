package adaptertest

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ckptsidecar/ckptsidecar/client"
)

// Daemon is a real daemon in a folder of its own.
type Daemon struct {
	Dir string // short, because the path of a socket must be
	t   *testing.T
	cmd *exec.Cmd
}

// Start starts a daemon that ends with the test.
func Start(t *testing.T) *Daemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "a")
	Must(t, err)
	d := &Daemon{Dir: dir, t: t}
	t.Cleanup(func() { d.Kill(); _ = os.RemoveAll(dir) })
	d.Start()
	return d
}

// Socket is the path of the daemon's socket.
func (d *Daemon) Socket() string { return filepath.Join(d.Dir, "s") }

// Start starts a killed daemon again, and waits until it says that it is ready.
func (d *Daemon) Start() {
	d.t.Helper()
	d.cmd = exec.Command(binary, "serve", "--db", filepath.Join(d.Dir, "ckpt.db"), "--socket", d.Socket())
	log, err := d.cmd.StderrPipe()
	Must(d.t, err)
	Must(d.t, d.cmd.Start())
	ready := make(chan bool, 1)
	go func() {
		lines := bufio.NewScanner(log)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "msg=ready") {
				ready <- true
			}
		}
		close(ready)
	}()
	if !<-ready {
		d.t.Fatal("the daemon does not get ready")
	}
}

// Kill kills the daemon, as kill -9 does.
func (d *Daemon) Kill() {
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait()
}

// Client is a client of the daemon. It ends with the test.
func (d *Daemon) Client() *client.Client {
	c := &client.Client{Socket: d.Socket(), SpoolDir: filepath.Join(d.Dir, "spool"), Deadline: 30 * time.Second}
	d.t.Cleanup(c.Close)
	return c
}

// Must ends the test with an error.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
