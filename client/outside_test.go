package client_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/client"
	ipc "github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// TestWireHasEveryCall: Wire has one method for each call.
func TestWireHasEveryCall(t *testing.T) {
	own := map[string]bool{"Close": true, "Send": true} // these belong to the connection and to the spool
	calls, wire := reflect.TypeFor[*ipc.Client](), reflect.TypeFor[*client.Wire]()
	for i := range calls.NumMethod() {
		name := calls.Method(i).Name
		if _, has := wire.MethodByName(name); !has && !own[name] {
			t.Errorf("Wire has no %s", name)
		}
	}
}

const outsideProgram = `package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/client"
)

func main() {
	c := &client.Client{Socket: filepath.Join(os.Args[1], "nobody"), SpoolDir: filepath.Join(os.Args[1], "spool"), Deadline: -1}
	defer c.Close()
	_, err := c.Wire().GraphTuple(context.Background(), ckptsidecar.GraphGet{Agent: "a", GraphThread: ckptsidecar.GraphThread{Thread: "t"}})
	var nobody *client.DialError
	fmt.Println(errors.As(err, &nobody) && !nobody.Stranger() && nobody.Path == c.Socket)

	c = &client.Client{Socket: c.Socket, SpoolDir: c.SpoolDir, Deadline: -1, FailOpen: true}
	defer c.Close()
	end := ckptsidecar.EndRequest{Status: ckptsidecar.RunCompleted}
	_, _, err = c.Wire().EndRun(context.Background(), ckptsidecar.RunRef{Agent: "a", Run: "r"}, end)
	var kept *client.KeptError
	fmt.Println(errors.As(err, &kept) && errors.As(kept.Err, &nobody))
}
`

// TestAnotherModuleUsesTheClient builds a program of another module. The
// program uses the errors of the client, and does not compile the server or the
// database.
func TestAnotherModuleUsesTheClient(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), outsideModule(t, root))
	write(t, filepath.Join(dir, "go.sum"), read(t, filepath.Join(root, "go.sum")))
	write(t, filepath.Join(dir, "main.go"), outsideProgram)
	inside := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	if out := inside("run", ".", t.TempDir()); out != "true\ntrue\n" {
		t.Errorf("the program answers %q", out)
	}
	for path := range strings.FieldsSeq(inside("list", "-deps", ".")) {
		for _, part := range []string{"/internal/ipc/server", "/internal/db", "modernc.org/", "patch"} {
			if strings.Contains(path, part) {
				t.Errorf("the client compiles %s", path)
			}
		}
	}
}

// outsideModule returns the go.mod of a module that requires this module and
// its dependencies.
func outsideModule(t *testing.T, root string) string {
	text := read(t, filepath.Join(root, "go.mod"))
	text = regexp.MustCompile(`(?m)^module .*$`).ReplaceAllString(text, "module outside.example/agent")
	return text + "\nrequire github.com/ckptsidecar/ckptsidecar v0.0.0\n\nreplace github.com/ckptsidecar/ckptsidecar => " + filepath.ToSlash(root) + "\n"
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
