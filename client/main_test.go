package client_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/ckptsidecar/ckptsidecar/client"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/testenv"
)

// binary is the real daemon, built once.
var binary string

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "worker" {
		worker(os.Args[2:])
		return
	}
	if len(os.Args) > 3 && os.Args[1] == "asker" {
		asker(os.Args[2], os.Args[3])
		return
	}
	if len(os.Args) > 2 && os.Args[1] == "underExec" {
		if err := underExec(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 5 && os.Args[1] == "payer" {
		payer(os.Args[2], os.Args[3], os.Args[4], os.Args[5])
		return
	}
	if len(os.Args) > 2 && os.Args[1] == "speaker" {
		speaker(os.Args[2])
		return
	}
	os.Exit(testenv.Run(func() int { return buildAndRun(m) }))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "client")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "ckptsidecar")
	if out, err := exec.Command("go", "build", "-o", binary, "../cmd/ckptsidecar").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// daemon is a real daemon in its own folder.
type daemon struct {
	t      *testing.T
	dir    string
	socket string
	cmd    *exec.Cmd
}

// newDaemon does not start the daemon yet. Its folder has a short path, because
// the path of a socket must be short.
func newDaemon(t *testing.T) *daemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "c")
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{t: t, dir: dir, socket: filepath.Join(dir, "s")}
	t.Cleanup(func() {
		d.stop()
		expect.Soon(t, dir+" is removed, also while a client writes", func() bool { return os.RemoveAll(dir) == nil })
	})
	return d
}

func (d *daemon) start() {
	d.t.Helper()
	d.cmd = exec.Command(binary, "serve", "--db", filepath.Join(d.dir, "ckpt.db"), "--socket", d.socket)
	d.cmd.Env = append(os.Environ(), "HOME="+d.dir)
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	c := client.Client{Socket: d.socket}
	defer c.Close()
	expect.Soon(d.t, "the daemon is ready", func() bool { return c.Wire().Ready(context.Background()) == nil })
}

func (d *daemon) stop() {
	if d.cmd == nil {
		return
	}
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait()
	d.cmd = nil
}

func started(t *testing.T) *daemon {
	d := newDaemon(t)
	d.start()
	return d
}

// open returns a client with a spool in the daemon's folder.
func (d *daemon) open(t *testing.T, change ...func(*client.Client)) *client.Client {
	t.Helper()
	c := &client.Client{Socket: d.socket, SpoolDir: filepath.Join(d.dir, "spool"), Deadline: 30 * time.Second}
	for _, f := range change {
		f(c)
	}
	t.Cleanup(c.Close)
	return c
}

func failOpen(c *client.Client) { c.FailOpen, c.Deadline = true, 200*time.Millisecond }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
