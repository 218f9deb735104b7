//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// aBlock is a block of code of a document: what stands before it, what it is, its text.
var aBlock = regexp.MustCompile("(?ms)(?:^<!-- test: skip, ([^\n]*) -->\n)?^```([a-z]*)\n(.*?)^```$")

// TestTheDocumentsRun plays the shell blocks of the pages that a new user reads, in
// their order, with a daemon that has the places that a user's own has. A block that
// cannot be run here says why in the line before it. Blocks of Python, TypeScript and
// Go are run by the tests of the clients.
func TestTheDocumentsRun(t *testing.T) {
	for _, page := range []string{"README.md", "docs/QUICKSTART.md", "docs/HOWTO.md"} {
		t.Run(filepath.Base(page), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(page)))
			if err != nil {
				t.Fatal(err)
			}
			reader := newReader(t)
			run, skipped := 0, 0
			for _, m := range aBlock.FindAllStringSubmatch(string(text), -1) {
				switch {
				case m[2] != "sh":
				case m[1] != "":
					skipped++
				default:
					reader.try(t, m[3])
					run++
				}
			}
			if run < 3 {
				t.Errorf("%d blocks of %s were run", run, page)
			}
			t.Logf("%d blocks run, %d say why they are not", run, skipped)
		})
	}
}

// reader is somebody who types what a page says.
type reader struct {
	dir string
	env []string
}

func newReader(t *testing.T) *reader {
	t.Helper()
	dir, err := os.MkdirTemp("", "r") // short, as the socket's path must be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "bin")
	for _, folder := range []string{bin, filepath.Join(dir, "home", ".local", "state"), filepath.Join(dir, "work")} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// testscript gives this binary the name of the command in a folder of PATH.
	command, err := exec.LookPath("ckptsidecar")
	if err != nil {
		command = self
	}
	if err := os.Symlink(command, filepath.Join(bin, "ckptsidecar")); err != nil {
		t.Fatal(err)
	}
	r := &reader{dir: filepath.Join(dir, "work")}
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); !strings.HasPrefix(name, "CKPTSIDECAR_") && !strings.HasPrefix(name, "XDG_") {
			r.env = append(r.env, v)
		}
	}
	home := filepath.Join(dir, "home")
	r.env = append(r.env, "HOME="+home, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	daemon := exec.Command(filepath.Join(bin, "ckptsidecar"), "serve")
	daemon.Env, daemon.Dir = r.env, r.dir
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- daemon.Wait() }()
	t.Cleanup(func() {
		_ = daemon.Process.Signal(os.Interrupt)
		<-ended
	})
	c := client.Client{Socket: filepath.Join(home, ".local", "state", "ckptsidecar", "ckptsidecar.sock")}
	defer c.Close()
	for c.Ready(t.Context()) != nil {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the daemon ended: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return r
}

// try types a block into a shell that stops at the first command that fails.
func (r *reader) try(t *testing.T, block string) {
	t.Helper()
	for tool, needed := range map[string]string{"curl": "curl ", "sqlite3": "sqlite3 "} {
		if _, err := exec.LookPath(tool); err != nil && strings.Contains(block, needed) {
			t.Logf("not run, because %s is not installed:\n%s", tool, block)
			return
		}
	}
	shell := exec.Command("sh", "-eu")
	shell.Env, shell.Dir, shell.Stdin = r.env, r.dir, strings.NewReader(block)
	if said, err := shell.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s\n%s", err, block, said)
	} else {
		t.Logf("%s\n%s", block, said)
	}
}
