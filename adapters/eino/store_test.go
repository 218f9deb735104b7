package eino_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/adapters/eino"
	"github.com/ckptsidecar/ckptsidecar/client"
	"github.com/cloudwego/eino/compose"
)

var _ compose.CheckPointStore = (*eino.Store)(nil)

// binary is the real daemon, built once.
var binary string

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "conform" {
		conform()
		return
	}
	if len(os.Args) > 2 && os.Args[1] == "reviewer" {
		reviewer(os.Args[2], os.Args[3])
		return
	}
	dir, err := os.MkdirTemp("", "eino")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "ckptsidecar")
	build := exec.Command("go", "build", "-o", binary, "./cmd/ckptsidecar")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// daemon is a real one in a folder of its own, which is short, as a socket's
// path must be.
type daemon struct {
	t   *testing.T
	dir string
	cmd *exec.Cmd
}

func started(t *testing.T) *daemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "e")
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{t: t, dir: dir}
	t.Cleanup(func() { d.kill(); _ = os.RemoveAll(dir) })
	d.start()
	return d
}

func (d *daemon) socket() string { return filepath.Join(d.dir, "s") }

func (d *daemon) start() {
	d.t.Helper()
	d.cmd = exec.Command(binary, "serve", "--db", filepath.Join(d.dir, "ckpt.db"), "--socket", d.socket())
	d.cmd.Env = append(os.Environ(), "HOME="+d.dir)
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	c := d.open()
	for until := time.Now().Add(30 * time.Second); c.Wire().Ready(context.Background()) != nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			d.t.Fatal("the daemon does not get ready")
		}
	}
}

func (d *daemon) kill() {
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait()
}

func (d *daemon) open() *client.Client {
	c := &client.Client{Socket: d.socket(), SpoolDir: filepath.Join(d.dir, "spool"), Deadline: 30 * time.Second}
	d.t.Cleanup(c.Close)
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestStore(t *testing.T) {
	d := started(t)
	ctx := t.Context()
	s := &eino.Store{Agent: d.open().Agent("graphs")}
	if _, found, err := s.Get(ctx, "never"); found || err != nil {
		t.Fatalf("of an id that was never set: %v, %v", found, err)
	}
	states := map[string][]byte{
		"a": []byte(`{"b":1,  "a":[1.0,"ä"]}`), "a/b": []byte("not JSON \x00\xff"), "a_b": {}, "": []byte("null"), "日本": []byte(`{"a":1,"a":2}`),
		strings.Repeat("x", 400): []byte("1"), strings.Repeat("x", 401): []byte("2"),
	}
	for id, state := range states {
		must(t, s.Set(ctx, id, []byte("an earlier one")))
		must(t, s.Set(ctx, id, state))
	}
	d.kill()
	d.start()
	s = &eino.Store{Agent: d.open().Agent("graphs")}
	for id, state := range states {
		got, found, err := s.Get(ctx, id)
		if err != nil || !found || !bytes.Equal(got, state) {
			t.Errorf("%q is %q, %v, %v; it was set to %q", id, got, found, err, state)
		}
	}
	page, err := s.Agent.List(ctx, ckpt.CheckpointFilter{Run: eino.RunName("a")})
	must(t, err)
	newest := page.Checkpoints[0]
	if len(page.Checkpoints) != 2 || newest.ContentType != ckpt.ContentTypeJSON || string(newest.Metadata) != `{"eino_checkpoint_id":"a"}` {
		t.Errorf("of a there are %d checkpoints, the newest is %s with %s", len(page.Checkpoints), newest.ContentType, newest.Metadata)
	}
}

func TestAStoreWithoutAnAgentSaysSo(t *testing.T) {
	var s eino.Store
	if err := s.Set(t.Context(), "a", nil); err == nil || !strings.Contains(err.Error(), "has no Agent") {
		t.Error(err)
	}
	if _, _, err := s.Get(t.Context(), "a"); err == nil {
		t.Error("Get answers")
	}
}

func TestADaemonThatIsAwayIsAnError(t *testing.T) {
	d := started(t)
	d.kill()
	c := d.open()
	c.Deadline = -1
	s := &eino.Store{Agent: c.Agent("graphs")}
	if _, found, err := s.Get(t.Context(), "a"); err == nil || found {
		t.Errorf("a checkpoint that cannot be looked up: %v, %v", found, err)
	}
	if err := s.Set(t.Context(), "a", []byte("1")); err == nil {
		t.Error("what was not saved is no error")
	}
}

func TestRunNamesAreNamesOfRuns(t *testing.T) {
	seen := map[string]string{}
	for _, id := range []string{"", "a", "A", "-", "--a", "a/b", "a_b", "a b", "\x00", "日本", strings.Repeat("é", 300), "x-" + eino.RunName("x")} {
		name := eino.RunName(id)
		if err := ckpt.CheckRunName(name); err != nil {
			t.Errorf("%q: %v", id, err)
		}
		if before, taken := seen[name]; taken {
			t.Errorf("%q and %q are both %s", before, id, name)
		}
		seen[name] = id
	}
}

// reviewer is a process that lives for one invocation: it runs a graph of three
// nodes, and notes in a file what each has done.
func reviewer(socket, notes string) {
	ctx := context.Background()
	graph := compose.NewGraph[string, string]()
	previous := compose.START
	for _, name := range []string{"write", "check", "publish"} {
		node := compose.InvokableLambda(func(_ context.Context, text string) (string, error) {
			file, err := os.OpenFile(notes, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				return "", err
			}
			defer file.Close()
			_, err = fmt.Fprintln(file, name)
			return text + "." + name, err
		})
		for _, err := range []error{graph.AddLambdaNode(name, node), graph.AddEdge(previous, name)} {
			if err != nil {
				panic(err)
			}
		}
		previous = name
	}
	if err := graph.AddEdge(previous, compose.END); err != nil {
		panic(err)
	}
	runnable, err := compiled(ctx, graph, &client.Client{Socket: socket})
	if err != nil {
		panic(err)
	}
	text, err := publish(ctx, runnable, "article/7")
	var wait *waiting
	if errors.As(err, &wait) {
		fmt.Print(wait)
		return
	}
	if err != nil {
		panic(err)
	}
	fmt.Print(text)
}

// A graph that waits for a person goes on in another process, after the daemon
// was killed too, and does nothing twice.
func TestInterruptedGraph(t *testing.T) {
	d := started(t)
	notes := filepath.Join(d.dir, "notes")
	invoke := func() string {
		t.Helper()
		out, err := exec.Command(os.Args[0], "reviewer", d.socket(), notes).Output()
		must(t, err)
		return string(out)
	}
	if got := invoke(); got != "waiting before publish" {
		t.Fatalf("the first process answers %q", got)
	}
	d.kill()
	d.start()
	if got := invoke(); got != "article/7.write.check.publish" {
		t.Errorf("the second process answers %q", got)
	}
	done, err := os.ReadFile(notes)
	must(t, err)
	if got := strings.Fields(string(done)); strings.Join(got, " ") != "write check publish" {
		t.Errorf("the nodes have done %q", got)
	}
	page, err := d.open().Agent("reviewer").List(t.Context(), ckpt.CheckpointFilter{Run: eino.RunName("article/7")})
	must(t, err)
	if len(page.Checkpoints) != 1 || page.Checkpoints[0].ContentType != ckpt.ContentTypeJSON {
		t.Errorf("the checkpoints are %+v: one is expected, which people can read", page.Checkpoints)
	}
}

// TestDocs finds each Go snippet of its section of docs/ADAPTERS.md in the code
// that runs here.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/ADAPTERS.md")
	must(t, err)
	source, err := os.ReadFile("example_test.go")
	must(t, err)
	_, section, _ := strings.Cut(string(text), "\n## eino\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := 0
	for i, part := range strings.Split(section, "```") {
		snippet, isGo := strings.CutPrefix(part, "go\n")
		if i%2 == 0 || !isGo {
			continue
		}
		blocks++
		if !strings.Contains(flat(string(source)), flat(snippet)) {
			t.Errorf("no test runs this snippet of docs/ADAPTERS.md:\n%s", snippet)
		}
	}
	if blocks < 2 {
		t.Errorf("only %d snippets were found", blocks)
	}
}

// flat takes the indentation away.
func flat(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "\n")
}
