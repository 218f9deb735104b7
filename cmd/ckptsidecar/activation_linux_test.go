package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// activated starts the daemon as systemd does, with a listening socket as file
// descriptor 3.
type activated struct {
	t      *testing.T
	dir    string
	socket *os.File
	client *client.Client
}

func newActivated(t *testing.T) *activated {
	t.Helper()
	dir, err := os.MkdirTemp("", "act")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	file, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	t.Cleanup(func() { file.Close() })
	a := &activated{t: t, dir: dir, socket: file, client: &client.Client{Socket: filepath.Join(dir, "s"), Retry: 20 * time.Second}}
	t.Cleanup(a.client.Close)
	return a
}

// start starts a daemon. It uses a shell because LISTEN_PID must be the pid of
// the process that takes the socket.
func (a *activated) start(flags string) (*exec.Cmd, *bytes.Buffer) {
	a.t.Helper()
	cmd := exec.Command("sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=1 exec ckptsidecar serve --db `+filepath.Join(a.dir, "ckpt.db")+" "+flags)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + a.dir}
	cmd.ExtraFiles = []*os.File{a.socket}
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	return cmd, &said
}

// TestAnInheritedSocketLosesNothing restarts the daemon repeatedly, sometimes
// by a kill, while a client saves.
func TestAnInheritedSocketLosesNothing(t *testing.T) {
	t.Parallel()
	a := newActivated(t)
	ctx, enough := context.WithCancel(t.Context())
	var saved []string
	var acked atomic.Int64
	var load sync.WaitGroup
	load.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			one, err := a.client.Save(context.Background(), &ckpt.SaveRequest{
				Agent: "a", Kind: ckpt.KindRecovery, ContentType: ckpt.ContentTypeJSON, State: fmt.Appendf(nil, `{"n":%d}`, n),
			})
			if err != nil {
				t.Errorf("save %d: %v", n, err)
				return
			}
			saved = append(saved, one.ID)
			acked.Add(1)
		}
	})
	for round := range 8 {
		before := acked.Load()
		cmd, said := a.start("")
		expect.Soon(t, "five saves are acknowledged", func() bool { return acked.Load() >= before+5 })
		sig := syscall.SIGTERM
		if round%4 == 3 {
			sig = syscall.SIGKILL
		}
		_ = cmd.Process.Signal(sig)
		err := cmd.Wait()
		if err != nil && sig == syscall.SIGTERM {
			t.Errorf("round %d: %v: %s", round, err, said)
		}
		if _, err := os.Stat(filepath.Join(a.dir, "s")); err != nil {
			t.Fatalf("the socket belongs to who made it, and is gone: %v", err)
		}
	}
	enough()
	last, _ := a.start("")
	load.Wait()
	t.Logf("%d saves over 8 restarts", len(saved))
	for _, id := range saved {
		if _, err := a.client.Checkpoint(t.Context(), id, true); err != nil {
			t.Errorf("an acknowledged save is gone: %v", err)
		}
	}
	if status, err := a.client.Status(t.Context()); err != nil || status.Endpoint != filepath.Join(a.dir, "s") {
		t.Errorf("the daemon says that it listens at %v, %v", status.Endpoint, err)
	}
	_ = last.Process.Signal(syscall.SIGTERM)
	_ = last.Wait()
}

// TestWhoWaitsIsToldThatTheDaemonCannotStart: a waiting client gets an answer,
// because otherwise systemd would start the daemon again as long as a client
// waits.
func TestWhoWaitsIsToldThatTheDaemonCannotStart(t *testing.T) {
	t.Parallel()
	for flags, says := range map[string]string{
		"--set access.admin_group=nobody-has-this-group": "nobody-has-this-group", // found when the socket is opened
		"--set access.socket_mode=0777":                  "access.socket_mode",    // found before anything is opened
	} {
		a := newActivated(t)
		waits, err := net.Dial("unix", filepath.Join(a.dir, "s"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(waits, "GET /healthz HTTP/1.1\r\nHost: d\r\nConnection: close\r\n\r\n")
		cmd, said := a.start(flags)
		if told, err := io.ReadAll(waits); !strings.Contains(string(told), `"code":"busy"`) || !strings.Contains(string(told), "cannot start") {
			t.Errorf("who waited was told %q, %v", told, err)
		}
		_ = waits.Close()
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 78 || !strings.Contains(said.String(), says) {
			t.Errorf("the daemon ended with %v and said %s", err, said)
		}
		if _, err := os.Stat(filepath.Join(a.dir, "s")); err != nil {
			t.Errorf("the socket is gone: %v", err)
		}
	}
}
