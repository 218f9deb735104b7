package mcpserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/testenv"
)

// binary is the real program, daemon and server, built once.
var binary string

func TestMain(m *testing.M) {
	os.Exit(testenv.Run(func() int { return buildAndRun(m) }))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "mcpserver")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "ckptsidecar.exe")
	if out, err := exec.Command("go", "build", "-o", binary, "../../cmd/ckptsidecar").CombinedOutput(); err != nil {
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
	flags  []string // more flags of serve
}

func newDaemon(t *testing.T) *daemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "m") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{t: t, dir: dir, socket: socketIn(dir)}
	t.Cleanup(func() { d.stop(); _ = os.RemoveAll(dir) })
	d.start()
	return d
}

func (d *daemon) start() {
	d.t.Helper()
	d.cmd = exec.Command(binary, append([]string{"serve", "--db", filepath.Join(d.dir, "ckpt.db"), "--socket", d.socket}, d.flags...)...)
	d.cmd.Env = append(os.Environ(), "HOME="+d.dir)
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	c := d.client()
	expect.Soon(d.t, "the daemon is ready", func() bool { return c.Ready(d.t.Context()) == nil })
}

func (d *daemon) stop() {
	if d.cmd != nil {
		_ = d.cmd.Process.Kill()
		_ = d.cmd.Wait()
		d.cmd = nil
	}
}

func (d *daemon) client() *client.Client {
	c := &client.Client{Socket: d.socket}
	d.t.Cleanup(c.Close)
	return c
}

// host is an MCP host with its server, which it starts with the command as
// hosts do.
type host struct {
	t       *testing.T
	cmd     *exec.Cmd
	session *mcp.ClientSession
}

func (d *daemon) host(agent string) *host {
	d.t.Helper()
	h := &host{t: d.t, cmd: exec.Command(binary, "mcp", "--agent", agent, "--socket", d.socket)}
	h.cmd.Stderr = os.Stderr
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	var err error
	if h.session, err = client.Connect(d.t.Context(), &mcp.CommandTransport{Command: h.cmd}, nil); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = h.session.Close() })
	return h
}

// kill ends the server as a crash does.
func (h *host) kill() {
	_ = h.cmd.Process.Kill()
	_ = h.session.Close()
}

// call calls a tool and returns its result, and the text in it.
func (h *host) call(name, arguments string) (result *mcp.CallToolResult, text string) {
	h.t.Helper()
	result, err := h.session.CallTool(context.Background(), &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(arguments)})
	if err != nil {
		h.t.Fatalf("%s: %v", name, err)
	}
	if len(result.Content) != 1 {
		h.t.Fatalf("%s gave %d contents", name, len(result.Content))
	}
	return result, result.Content[0].(*mcp.TextContent).Text
}

// done calls a tool that must succeed, and decodes its result.
func (h *host) done(name, arguments string) map[string]any {
	h.t.Helper()
	result, text := h.call(name, arguments)
	if result.IsError {
		h.t.Fatalf("%s %s: %s", name, arguments, text)
	}
	out := map[string]any{}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		h.t.Fatalf("%s gave no JSON: %s", name, text)
	}
	return out
}

// refused calls a tool that must fail, and checks that its message contains the
// parts.
func (h *host) refused(name, arguments string, want ...string) {
	h.t.Helper()
	result, text := h.call(name, arguments)
	if !result.IsError {
		h.t.Errorf("%s %s was done: %s", name, arguments, text)
	}
	for _, part := range want {
		if !strings.Contains(text, part) {
			h.t.Errorf("%s %s is answered %q, without %q", name, arguments, text, part)
		}
	}
}

func wantText(t *testing.T, what string, got any, parts ...string) {
	t.Helper()
	text := fmt.Sprint(got)
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s is %q, without %q", what, text, part)
		}
	}
}
