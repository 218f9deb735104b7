package hook_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/hook"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/testenv"
)

// binary is the real program, built once.
var binary string

func TestMain(m *testing.M) {
	os.Exit(testenv.Run(func() int { return buildAndRun(m) }))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "hook")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "ckptsidecar.exe")
	build := exec.Command("go", "build", "-o", binary, "../../cmd/ckptsidecar")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // like a release
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// daemon is a real daemon in its own folder.
type daemon struct {
	dir, socket string
	cmd         *exec.Cmd
}

func newDaemonIn(t testing.TB) *daemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "h") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{dir: dir, socket: socketIn(dir)}
	t.Cleanup(func() {
		d.stop()
		_ = os.RemoveAll(dir)
	})
	d.start(t)
	return d
}

// start starts the daemon, also again, and waits until it is ready.
func (d *daemon) start(t testing.TB) {
	t.Helper()
	cmd := exec.Command(binary, "serve", "--db", filepath.Join(d.dir, "ckpt.db"), "--socket", d.socket)
	cmd.Env = append(os.Environ(), "HOME="+d.dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d.cmd = cmd
	c := &client.Client{Socket: d.socket}
	defer c.Close()
	expect.Soon(t, "the daemon is ready", func() bool { return c.Ready(t.Context()) == nil })
}

func (d *daemon) stop() {
	if d.cmd != nil {
		_ = d.cmd.Process.Kill()
		_ = d.cmd.Wait()
		d.cmd = nil
	}
}

// newDaemon starts a daemon, and returns its socket.
func newDaemon(t testing.TB) (socket string) {
	t.Helper()
	return newDaemonIn(t).socket
}

// newHandler returns a handler with its own daemon.
func newHandler(t testing.TB) *hook.Handler {
	t.Helper()
	return handlerOf(t, newDaemon(t))
}

// handlerOf returns a handler of a daemon.
func handlerOf(t testing.TB, socket string) *hook.Handler {
	t.Helper()
	c := &client.Client{Socket: socket}
	t.Cleanup(c.Close)
	return &hook.Handler{Client: c, Agent: "shop", Project: hook.ProjectOf("/home/kim/shop"), PID: os.Getpid(), Risky: hook.NewRisky(nil, nil, false), SaveEvery: 20}
}
