package server_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/server"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

// graphWorld is a server over a real store on a real socket, and its client.
func graphWorld(t *testing.T, change ...func(*server.Options)) (*db.Store, *client.Client) {
	t.Helper()
	store, err := db.Open(t.Context(), ledger.Options{Path: filepath.Join(t.TempDir(), "ckpt.db"), Retention: retention.Plan, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "ipc") // t.TempDir is too long for the path of a socket
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s.sock")
	ln, err := endpoint.Listen(t.Context(), endpoint.Options{Path: path, SingleUser: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	o := server.Options{Store: server.StoreOf(store)}
	for _, f := range change {
		f(&o)
	}
	go func() { served <- server.NewServer(o).Serve(ctx, ln) }()
	client := &client.Client{Socket: path}
	t.Cleanup(func() {
		client.Close()
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		_ = store.Close()
		_ = os.RemoveAll(dir)
	})
	return store, client
}

// TestGraphThreadsAreFencedOneByOne: what a thread stores waits for its own run in the fleet. Another
// host may have claimed another thread of the same agent.
func TestGraphThreadsAreFencedOneByOne(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 9)
	_, client := graphWorld(t, func(o *server.Options) {
		o.Durable = func(_ ckpt.Scope, _, run string) (ckpt.Durability, func(context.Context) (ckpt.Durability, error)) {
			asked <- run
			return ckpt.DurabilityLocal, nil
		}
	})
	for _, name := range []string{"one", "two"} {
		th := ckpt.GraphThread{Thread: name}
		saved, err := client.GraphPut(t.Context(), &ckpt.GraphPut{Agent: "langgraph", GraphThread: th, Checkpoint: ckpt.JSON(`{"v":1,"id":"1","channel_versions":{}}`)})
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.GraphPutWrites(t.Context(), &ckpt.GraphPutWrites{Agent: "langgraph", GraphThread: th, Checkpoint: "1",
			Writes: []ckpt.GraphWrite{{Task: "k", Channel: "a", GraphBytes: ckpt.GraphBytes{Type: "json", Data: []byte(`1`)}}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, what := range []string{"a checkpoint", "a write"} {
			if run := <-asked; run != saved.Run || run == "" {
				t.Errorf("%s of the run %q waits for the run %q", what, saved.Run, run)
			}
		}
	}
}

// TestGraphClientSaysWhatTheStoreHas: the client returns over the wire what the
// store has.
func TestGraphClientSaysWhatTheStoreHas(t *testing.T) {
	store, client := graphWorld(t)
	ctx := t.Context()
	me := ckpt.Scope{Caller: ckpt.Caller{Owner: fmt.Sprintf("uid:%d", os.Getuid())}}
	th := ckpt.GraphThread{Thread: "t 1", NS: "sub:ü"}
	value := func(channel, typ, data string) ckpt.GraphValue {
		return ckpt.GraphValue{Channel: channel, GraphBytes: ckpt.GraphBytes{Type: typ, Data: []byte(data)}}
	}
	saved, err := client.GraphPut(ctx, &ckpt.GraphPut{Agent: "langgraph", GraphThread: th, Checkpoint: ckpt.JSON(`{"v":1,"id":"1","channel_versions":{"a":1,"m":"x.1"}}`),
		Metadata: ckpt.JSON(`{"run_id":"r","n":1}`), Values: []ckpt.GraphValue{value("a", "json", `"a"`), value("m", "msgpack", "\x00\n\xff"), value("e", "null", "")}})
	if err != nil || saved.Seq != 1 {
		t.Fatal(saved, err)
	}
	write := func(idx int64, channel string) ckpt.GraphWrite {
		return ckpt.GraphWrite{Task: "k", Path: "p", Idx: idx, Channel: channel, GraphBytes: ckpt.GraphBytes{Type: "json", Data: []byte(`1`)}}
	}
	written, err := client.GraphPutWrites(ctx, &ckpt.GraphPutWrites{Agent: "langgraph", GraphThread: th, Checkpoint: "1", Writes: []ckpt.GraphWrite{write(0, "a"), write(1, ckpt.GraphTasks)}})
	if err != nil || written.Written != 2 {
		t.Fatal(written, err)
	}
	if _, err := client.GraphPutWrites(ctx, &ckpt.GraphPutWrites{Agent: "langgraph", GraphThread: th, Checkpoint: "1", Writes: []ckpt.GraphWrite{write(0, "a"), {Task: "other", Channel: "a"}}}); ckpt.CodeOf(err) != ckpt.CodeInvalid {
		t.Errorf("writes of two tasks: %v", err)
	}
	missing, err := client.GraphPut(ctx, &ckpt.GraphPut{Agent: "langgraph", GraphThread: th, Parent: "1", Checkpoint: ckpt.JSON(`{"v":1,"id":"2","channel_versions":{"a":1,"z":1}}`), Carry: []string{"a", "z"}})
	if err != nil || !cmp.Equal(missing.Missing, []string{"z"}) {
		t.Fatal(missing, err)
	}
	if _, err = client.GraphPut(ctx, &ckpt.GraphPut{Agent: "langgraph", GraphThread: th, Parent: "1", Checkpoint: ckpt.JSON(`{"v":1,"id":"2","channel_versions":{"a":1}}`), Carry: []string{"a"}}); err != nil {
		t.Fatal(err)
	}

	q := ckpt.GraphQuery{Agent: "langgraph", Filter: map[string]ckpt.JSON{}}
	want, err := store.GraphTuples(ctx, me, q)
	if err != nil || len(want.Tuples) != 2 || len(want.Tuples[0].Sends) != 1 {
		t.Fatal(want, err)
	}
	same := cmp.Options{cmpopts.EquateEmpty(), cmpopts.IgnoreFields(ckpt.GraphWrite{}, "Path"), cmpopts.IgnoreFields(ckpt.GraphValue{}, "Tag")}
	got, err := client.GraphTuples(ctx, q)
	if diff := cmp.Diff(want, got, same); diff != "" || err != nil {
		t.Errorf("listed: %v %s", err, diff)
	}
	one, err := client.GraphTuple(ctx, ckpt.GraphGet{Agent: "langgraph", GraphThread: th, Checkpoint: "1"})
	if diff := cmp.Diff(&want.Tuples[1], one, same); diff != "" || err != nil {
		t.Errorf("got: %v %s", err, diff)
	}
	if none, err := client.GraphTuple(ctx, ckpt.GraphGet{Agent: "langgraph", GraphThread: th, Checkpoint: "3"}); none != nil || err != nil {
		t.Errorf("what is not there: %v %v", none, err)
	}
	history, err := client.GraphHistory(ctx, ckpt.GraphHistoryQuery{Agent: "langgraph", GraphThread: th, Channels: []string{"a", "q"}})
	if err != nil || len(history) != 2 || string(history[0].Seed.Data) != `"a"` || len(history[0].Writes) != 1 || history[1].Seed != nil {
		t.Errorf("history: %+v %v", history, err)
	}

	if copied, err := client.GraphCopyThread(ctx, ckpt.GraphCopy{Agent: "langgraph", From: "t 1", To: "u"}); err != nil || copied.Copied != 2 {
		t.Errorf("copied: %v %v", copied, err)
	}
	for name, remove := range map[string]func() (*ckpt.GraphRemoved, error){
		"runs": func() (*ckpt.GraphRemoved, error) { return client.GraphDeleteRuns(ctx, "langgraph", []string{"no"}) },
		"prune": func() (*ckpt.GraphRemoved, error) {
			return client.GraphPrune(ctx, ckpt.GraphPrune{Agent: "langgraph", Threads: []string{"no"}, Strategy: ckpt.GraphDelete})
		},
		"thread": func() (*ckpt.GraphRemoved, error) { return client.GraphDeleteThread(ctx, "langgraph", "no") },
	} {
		if removed, err := remove(); err != nil || removed.Removed != 0 {
			t.Errorf("%s: %v %v", name, removed, err)
		}
	}
	if removed, err := client.GraphDeleteThread(ctx, "langgraph", "t 1"); err != nil || removed.Removed != 2 {
		t.Errorf("thread: %v %v", removed, err)
	}
}

// TestGraphClientIsSentWhatItHasNot: a value that the client already has is not
// sent. Every other value is sent, whichever client made it.
func TestGraphClientIsSentWhatItHasNot(t *testing.T) {
	_, client := graphWorld(t)
	ctx := t.Context()
	th := ckpt.GraphThread{Thread: "t"}
	text := func(word string) string { return `"` + strings.Repeat(word, 100) + `"` }
	put := func(id, version string, values ...ckpt.GraphValue) map[string]string {
		t.Helper()
		saved, err := client.GraphPut(ctx, &ckpt.GraphPut{Agent: "langgraph", GraphThread: th, Checkpoint: ckpt.JSON(`{"v":4,"id":"` + id + `","channel_versions":{"a":` + version + `,"b":1,"c":1}}`), Values: values})
		if err != nil || len(saved.Missing) > 0 {
			t.Fatal(saved, err)
		}
		return saved.Tags
	}
	value := func(channel, typ, data string) ckpt.GraphValue {
		return ckpt.GraphValue{Channel: channel, GraphBytes: ckpt.GraphBytes{Type: typ, Data: []byte(data)}}
	}
	// sent returns which values come with their bytes.
	sent := func(have map[string]string) string {
		t.Helper()
		tuple, err := client.GraphTuple(ctx, ckpt.GraphGet{Agent: "langgraph", GraphThread: th, Have: have})
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, v := range tuple.Values {
			if !v.Held {
				list = append(list, v.Channel)
			} else if len(v.Data) > 0 {
				t.Errorf("%s is held and sent", v.Channel)
			}
			if (v.Tag == "") != (v.Channel == "c") {
				t.Errorf("the tag of %s is %q", v.Channel, v.Tag)
			}
		}
		return strings.Join(list, " ")
	}
	tags := put("1", "1", value("a", "json", text("one ")), value("b", "bytes", text("bb ")), value("c", "json", `"small"`))
	if len(tags) != 2 || tags["a"] == tags["b"] {
		t.Errorf("the tags are %v", tags)
	}
	for name, step := range map[string]struct {
		have map[string]string
		want string
	}{
		"all":         {tags, "c"},
		"one":         {map[string]string{"b": tags["b"]}, "a c"},
		"nothing":     {nil, "a b c"},
		"another":     {map[string]string{"a": tags["b"], "b": tags["a"], "c": "", "d": tags["a"]}, "a b c"},
		"no real one": {map[string]string{"a": "x", "b": "", "c": ""}, "a b c"},
	} {
		if got := sent(step.have); got != step.want {
			t.Errorf("%s: %q are sent, want %q", name, got, step.want)
		}
	}
	put("2", "1", value("a", "json", text("two ")), value("b", "json", text("bb ")), value("c", "json", `"small"`)) // the same version, in another fork
	if got := sent(tags); got != "a b c" {
		t.Errorf("of another fork's values %q are sent", got)
	}
	list, err := client.GraphTuples(ctx, ckpt.GraphQuery{Agent: "langgraph"})
	if err != nil || list.Tuples[0].Values[0].Tag != "" || string(list.Tuples[1].Values[0].Data) != text("one ") {
		t.Errorf("a list: %+v %v", list, err)
	}
}

// FuzzGraphPut: every framed body is accepted as a whole or refused.
func FuzzGraphPut(f *testing.F) {
	for _, body := range []string{"", "{}\n", "{}", `{"thread":"t","checkpoint":{"id":"1"}}` + "\n",
		`{"thread":"t","checkpoint":{"id":"1"},"values":[{"channel":"a","type":"json","length":2}]}` + "\n12",
		`{"thread":"t","checkpoint":{"id":"1"},"values":[{"channel":"a","type":"json","length":-2}]}` + "\n12",
		`{"thread":"t","checkpoint":{"id":"1"},"values":[{"channel":"a","type":"json","length":9223372036854775807}]}` + "\n12",
		`{"thread":"t","parent":"1","checkpoint":{"id":"1","channel_versions":{"a":1}},"carry":["a"]}` + "\n",
		`{"thread":"t","checkpoint":{"id":"1","v":3e400},"metadata":{"a":[{}]}}` + "\n"} {
		f.Add([]byte(body))
	}
	store, err := db.Open(f.Context(), ledger.Options{Path: filepath.Join(f.TempDir(), "ckpt.db"), Retention: retention.Plan, Version: "test"})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = store.Close() })
	server := server.NewServer(server.Options{Store: server.StoreOf(store)})
	handler := server.HandlerFor(ckpt.Caller{Owner: "uid:1"})
	send := func(method string, body []byte) *httptest.ResponseRecorder {
		rec := httptest.NewRecorder()
		handler.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/v1/agents/a/graph/"+method, bytes.NewReader(body)))
		return rec
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, method := range []string{"put", "put_writes", "get", "list", "history", "prune"} {
			rec := send(method, body)
			if rec.Code >= 500 || server.Stats().Panics != 0 {
				t.Fatalf("%s: %d %s", method, rec.Code, rec.Body)
			}
			if method == "put" && rec.Code == http.StatusOK && strings.Contains(rec.Body.String(), `"missing":[]`) {
				if page := send("list", []byte(`{}`)); page.Code != http.StatusOK {
					t.Fatalf("what was put is not listed: %d %s", page.Code, page.Body)
				}
			}
		}
	})
}
