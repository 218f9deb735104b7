package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestSystemdHandsOverASocketForSpans: systemd opens the socket for spans,
// because its folder belongs to root and the daemon cannot create a socket
// there.
func TestSystemdHandsOverASocketForSpans(t *testing.T) {
	t.Parallel()
	a := newActivated(t)
	path := filepath.Join(a.dir, "spans")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	file, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	defer func() { _ = file.Close() }()
	cmd := exec.Command("sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=ckptsidecar.socket:otlp exec ckptsidecar serve --db `+filepath.Join(a.dir, "ckpt.db"))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + a.dir, "CKPTSIDECAR_OTLP_ENABLED=true"}
	cmd.ExtraFiles = []*os.File{a.socket, file}
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}()
	now := time.Now().UnixNano()
	body := fmt.Sprintf(`{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"0af7651916cd43dd8448eb211c80319c","spanId":"00000000000000a1",
		"name":"execute_tool x","startTimeUnixNano":"%d","endTimeUnixNano":"%d","attributes":[{"key":"gen_ai.operation.name","value":{"stringValue":"execute_tool"}}]}]}]}]}`, now, now)
	exporter := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	defer exporter.CloseIdleConnections()
	answer, err := exporter.Post("http://localhost/v1/traces", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	status, err := a.client.Status(t.Context())
	if err != nil || answer.StatusCode != http.StatusOK || status.OTLP.Socket != path || status.OTLP.Spans.Step != 1 {
		t.Errorf("%d, %+v, %v", answer.StatusCode, status, err)
	}
	for {
		run, err := a.client.Run(t.Context(), ckpt.RunRef{Agent: "otlp", Run: "0af7651916cd43dd8448eb211c80319c"})
		if err == nil {
			if run.StepsEnded != 1 || run.Source != ckpt.SourceOTLP {
				t.Errorf("%+v", run)
			}
			return
		}
		if ckpt.CodeOf(err) != ckpt.CodeNotFound {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
