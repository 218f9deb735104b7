package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ckptsidecar/ckptsidecar/internal/cli/clitest"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/testenv"
)

func TestMain(m *testing.M) {
	testscript.Main(isolated{m}, map[string]func(){"ckptsidecar": main, "statements": statements})
}

// isolated runs the tests in a home of their own. The commands that
// testscript plays with this binary do not come here.
type isolated struct{ m *testing.M }

func (i isolated) Run() int { return testenv.Run(i.m.Run) }

// TestStories plays testdata/*.txtar: each is a story with the real daemon in
// the background, and sqlite3 where it is installed.
func TestStories(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Setenv("GORACE", "atexit_sleep_ms=10") // a program under the race detector waits a second at its end
			env.Setenv(testenv.Marker, os.Getenv(testenv.Marker))
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("CKPTSIDECAR_DB", filepath.Join(env.WorkDir, "data", "ckpt.db"))
			env.Setenv("CKPTSIDECAR_SOCKET", filepath.Join(env.WorkDir, "run", "sock"))
			return nil
		},
		Cmds:                clitest.Commands(map[string]clitest.Command{"ready": ready}),
		RequireExplicitExec: true,
	})
}

// ready waits until the daemon answers.
func ready(ts *testscript.TestScript, _ bool, _ []string) {
	client := client.Client{Socket: ts.Getenv("CKPTSIDECAR_SOCKET")}
	defer client.Close()
	clitest.Until(ts, "the daemon does not become ready", func() bool { return client.Ready(context.Background()) == nil })
}
