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

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/adapters/eino"
	"github.com/ckptsidecar/ckptsidecar/client"
	"github.com/ckptsidecar/ckptsidecar/internal/adaptertest"
	"github.com/cloudwego/eino/compose"
)

var _ compose.CheckPointStore = (*eino.Store)(nil)

func TestMain(m *testing.M) {
	adaptertest.Main(m, map[string]func([]string){
		"conform":  func([]string) { conform() },
		"reviewer": func(args []string) { reviewer(args[0], args[1]) },
	})
}

func TestStore(t *testing.T) {
	d := adaptertest.Start(t)
	ctx := t.Context()
	s := &eino.Store{Agent: d.Client().Agent("graphs")}
	if _, found, err := s.Get(ctx, "never"); found || err != nil {
		t.Fatalf("of an id that was never set: %v, %v", found, err)
	}
	states := map[string][]byte{
		"a": []byte(`{"b":1,  "a":[1.0,"ä"]}`), "a/b": []byte("not JSON \x00\xff"), "a_b": {}, "": []byte("null"), "日本": []byte(`{"a":1,"a":2}`),
		strings.Repeat("x", 400): []byte("1"), strings.Repeat("x", 401): []byte("2"),
	}
	for id, state := range states {
		adaptertest.Must(t, s.Set(ctx, id, []byte("an earlier one")))
		adaptertest.Must(t, s.Set(ctx, id, state))
	}
	d.Kill()
	d.Start()
	s = &eino.Store{Agent: d.Client().Agent("graphs")}
	for id, state := range states {
		got, found, err := s.Get(ctx, id)
		if err != nil || !found || !bytes.Equal(got, state) {
			t.Errorf("%q is %q, %v, %v; it was set to %q", id, got, found, err, state)
		}
	}
	page, err := s.Agent.List(ctx, ckpt.CheckpointFilter{Run: eino.RunName("a")})
	adaptertest.Must(t, err)
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
	d := adaptertest.Start(t)
	d.Kill()
	c := d.Client()
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
// nodes, and records in a file what each has done.
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

// TestInterruptedGraph: a graph that waits for a person continues in another
// process, even after the daemon was killed, and does nothing twice.
func TestInterruptedGraph(t *testing.T) {
	d := adaptertest.Start(t)
	notes := filepath.Join(d.Dir, "notes")
	invoke := func() string {
		t.Helper()
		out, err := exec.Command(os.Args[0], "reviewer", d.Socket(), notes).Output()
		adaptertest.Must(t, err)
		return string(out)
	}
	if got := invoke(); got != "waiting before publish" {
		t.Fatalf("the first process answers %q", got)
	}
	d.Kill()
	d.Start()
	if got := invoke(); got != "article/7.write.check.publish" {
		t.Errorf("the second process answers %q", got)
	}
	done, err := os.ReadFile(notes)
	adaptertest.Must(t, err)
	if got := strings.Fields(string(done)); strings.Join(got, " ") != "write check publish" {
		t.Errorf("the nodes have done %q", got)
	}
	page, err := d.Client().Agent("reviewer").List(t.Context(), ckpt.CheckpointFilter{Run: eino.RunName("article/7")})
	adaptertest.Must(t, err)
	if len(page.Checkpoints) != 1 || page.Checkpoints[0].ContentType != ckpt.ContentTypeJSON {
		t.Errorf("the checkpoints are %+v: one is expected, which people can read", page.Checkpoints)
	}
}

func TestConformance(t *testing.T) { adaptertest.Conformance(t) }

func TestDocs(t *testing.T) { adaptertest.Documented(t, "eino", 2) }
