package hook_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

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

// newDaemon starts a real daemon in its own folder, and returns its socket.
func newDaemon(t testing.TB) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "h") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	socket = socketIn(dir)
	cmd := exec.Command(binary, "serve", "--db", filepath.Join(dir, "ckpt.db"), "--socket", socket)
	cmd.Env = append(os.Environ(), "HOME="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	})
	c := &client.Client{Socket: socket}
	defer c.Close()
	for until := time.Now().Add(time.Minute); c.Ready(t.Context()) != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("the daemon does not get ready")
		}
	}
	return socket
}

// newHandler returns a handler with its own daemon.
func newHandler(t testing.TB) *hook.Handler {
	t.Helper()
	c := &client.Client{Socket: newDaemon(t)}
	t.Cleanup(c.Close)
	return &hook.Handler{Client: c, Agent: "shop", Project: hook.ProjectOf("/home/kim/shop"), PID: os.Getpid(), Risky: hook.NewRisky(nil, nil, false), SaveEvery: 20}
}
