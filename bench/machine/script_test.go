package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ckptsidecar/ckptsidecar/internal/cli/clitest"
)

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"machine": main}) }

// TestStories plays testdata/*.txtar with a program that is built for it, or with the program that CKPTSIDECAR_BIN
// names.
func TestStories(t *testing.T) {
	server := os.Getenv("CKPTSIDECAR_BIN")
	if server == "" {
		server = filepath.Join(t.TempDir(), "ckptsidecar")
		build := exec.Command("go", "build", "-o", server, "./cmd/ckptsidecar")
		build.Dir = filepath.Join("..", "..")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("SERVER", server)
			env.Setenv("PATH", fmt.Sprintf("%s%c%s", env.Getenv("PATH"), filepath.ListSeparator, filepath.Dir(server)))
			return nil
		},
		Cmds:                clitest.Commands(nil),
		RequireExplicitExec: true,
	})
}
