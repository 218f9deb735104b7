package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
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
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"ready": ready, "exits": exits, "capture": capture, "soon": soon, "fields": fields,
		},
		RequireExplicitExec: true,
	})
}

// ready waits until the daemon answers.
func ready(ts *testscript.TestScript, _ bool, _ []string) {
	client := ipc.Client{Socket: ts.Getenv("CKPTSIDECAR_SOCKET")}
	defer client.Close()
	until(ts, "the daemon does not become ready", func() bool { return client.Ready(context.Background()) == nil })
}

// exits runs a command and checks its exit code: exits 3 ckptsidecar show …
func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	var exit *exec.ExitError
	code := 0
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
}

// capture puts what was last written to standard output into a variable.
func capture(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

// soon repeats a command until it succeeds: soon test -e file
func soon(ts *testscript.TestScript, _ bool, args []string) {
	until(ts, strings.Join(args, " ")+" does not come true", func() bool { return ts.Exec(args[0], args[1:]...) == nil })
}

// fields checks a JSON document: fields stdout bench=save cells.0.size wants the
// first to be that, and the others to be there and not 0, empty or null.
func fields(ts *testscript.TestScript, _ bool, args []string) {
	var all any
	decoder := json.NewDecoder(strings.NewReader(ts.ReadFile(args[0])))
	decoder.UseNumber()
	ts.Check(decoder.Decode(&all))
	for _, arg := range args[1:] {
		path, want, given := strings.Cut(arg, "=")
		value := all
		for name := range strings.SplitSeq(path, ".") {
			switch inside := value.(type) {
			case map[string]any:
				value = inside[name]
			case []any:
				n, err := strconv.Atoi(name)
				ts.Check(err)
				if value = nil; n < len(inside) {
					value = inside[n]
				}
			default:
				value = nil
			}
		}
		text := fmt.Sprint(value)
		if given && text != want || !given && slices.Contains([]string{"0", "", "<nil>"}, text) {
			ts.Fatalf("%s is %s", arg, text)
		}
	}
}

func until(ts *testscript.TestScript, complaint string, done func() bool) {
	for end := time.Now().Add(10 * time.Second); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			ts.Fatalf("%s in 10 seconds", complaint)
		}
	}
}
