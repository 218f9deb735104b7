//go:build unix

package doctor

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

// TestASilentDaemonIsNotWaitedForWithoutEnd: a daemon that accepts connections and does not answer is told from
// none, and the checks that need no daemon are still made.
func TestASilentDaemonIsNotWaitedForWithoutEnd(t *testing.T) {
	dir, err := os.MkdirTemp("", "ckpt") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	silent, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()

	a := &cli.App{
		Flags: &cli.Flags{Socket: socket}, Env: func(string) string { return "" }, Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{},
		Out: &term.Style{}, Err: &term.Style{}, StatusMost: time.Millisecond,
	}
	if _, err := a.Status(t.Context()); cli.ExitCode(err) != cli.ExitTryLater || !strings.Contains(err.Error(), "service restart") {
		t.Errorf("status: %v", err)
	}
	c := &Command{cli.DatabaseFlag{DB: filepath.Join(dir, "ckpt.db")}}
	found := map[string]finding{}
	if err := c.look(t.Context(), a, func(f finding) { found[f.Check] = f }); err != nil {
		t.Fatal(err)
	}
	f := found["daemon"]
	if f.Level != levelFail || !strings.Contains(f.What, "does not answer within 1ms") || strings.Contains(f.Do, "serve") ||
		!strings.Contains(f.Do, "service restart") {
		t.Errorf("the daemon: %+v", f)
	}
	for _, check := range []string{"files", "space", "clock"} {
		if found[check].What == "" || found[check].skipped != "" {
			t.Errorf("%s was not looked at: %+v", check, found[check])
		}
	}
	if f := unanswered(ckpt.Errorf(ckpt.CodeInternal, "it broke")); f.Do != "read its log" {
		t.Errorf("a daemon that answered wrongly: %+v", f)
	}
}
