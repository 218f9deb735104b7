package adk_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ckptsidecar/ckptsidecar/adapters/adk"
	"github.com/ckptsidecar/ckptsidecar/client"
	"github.com/ckptsidecar/ckptsidecar/internal/adaptertest"
	"google.golang.org/adk/agent/llmagent"
	"google.golang.org/adk/model"
	"google.golang.org/adk/session"
	"google.golang.org/adk/session/sessiontestsuite"
	"google.golang.org/adk/tool"
	"google.golang.org/adk/tool/functiontool"
	"google.golang.org/genai"
)

func TestMain(m *testing.M) {
	adaptertest.Main(m, map[string]func([]string){
		"conform": func([]string) { conform() },
		"adder":   func(args []string) { adder(args[0], args[1]) },
	})
}

func service(d *adaptertest.Daemon, agent string) *adk.Service {
	return &adk.Service{Client: d.Client(), Agent: agent}
}

// TestTheKitsOwnSuite runs the kit's own tests for its services, each with a
// separate agent.
func TestTheKitsOwnSuite(t *testing.T) {
	d := adaptertest.Start(t)
	agents := 0
	sessiontestsuite.RunServiceTests(t, sessiontestsuite.SuiteOptions{SupportsUserProvidedSessionID: true}, func(*testing.T) session.Service {
		agents++
		return service(d, fmt.Sprint("suite-", agents))
	})
}

// TestManyWriters: sessions that several processes write at once have all
// events and all state, and so do the processes that read them.
func TestManyWriters(t *testing.T) {
	d := adaptertest.Start(t)
	ctx := t.Context()
	_, err := service(d, "crowd").Create(ctx, &session.CreateRequest{AppName: "a", UserID: "u", SessionID: "s"})
	adaptertest.Must(t, err)
	const writers, each = 4, 6
	var group sync.WaitGroup
	for who := range writers {
		group.Go(func() {
			s := service(d, "crowd")
			got, err := s.Get(ctx, &session.GetRequest{AppName: "a", UserID: "u", SessionID: "s"})
			if err != nil {
				t.Error(err)
				return
			}
			for n := range each {
				key := fmt.Sprintf("%d.%d", who, n)
				e := session.NewEvent("i")
				e.Author, e.Actions.StateDelta = key, map[string]any{key: true, "app:" + key: true, "user:" + key: true}
				for range 2 { // the second time as if the first answer was lost
					if err := s.AppendEvent(ctx, got.Session, e); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	group.Wait()
	got, err := service(d, "crowd").Get(ctx, &session.GetRequest{AppName: "a", UserID: "u", SessionID: "s"})
	adaptertest.Must(t, err)
	if n := got.Session.Events().Len(); n != writers*each {
		t.Errorf("there are %d events, want %d", n, writers*each)
	}
	state := 0
	for range got.Session.State().All() {
		state++
	}
	if state != 3*writers*each {
		t.Errorf("the state has %d keys, want %d", state, 3*writers*each)
	}
	for who := range writers { // checks the order of each writer
		var own []string
		for e := range got.Session.Events().All() {
			if strings.HasPrefix(e.Author, fmt.Sprint(who, ".")) {
				own = append(own, e.Author)
			}
		}
		if !slices.IsSorted(own) || len(own) != each {
			t.Errorf("the events of writer %d are %q", who, own)
		}
	}
}

func TestASessionThatWasDeletedBeginsAnew(t *testing.T) {
	d := adaptertest.Start(t)
	ctx := t.Context()
	s := service(d, "again")
	for range 2 {
		made, err := s.Create(ctx, &session.CreateRequest{AppName: "a", UserID: "u", SessionID: "s", State: map[string]any{"k": "v"}})
		adaptertest.Must(t, err)
		adaptertest.Must(t, s.AppendEvent(ctx, made.Session, session.NewEvent("i")))
		got, err := service(d, "again").Get(ctx, &session.GetRequest{AppName: "a", UserID: "u", SessionID: "s"})
		adaptertest.Must(t, err)
		if n := got.Session.Events().Len(); n != 1 {
			t.Errorf("there are %d events, want 1", n)
		}
		adaptertest.Must(t, s.Delete(ctx, &session.DeleteRequest{AppName: "a", UserID: "u", SessionID: "s"}))
		if _, err := s.Get(ctx, &session.GetRequest{AppName: "a", UserID: "u", SessionID: "s"}); err == nil {
			t.Error("a session that was deleted is there")
		}
	}
}

// script replaces a model: it calls the tool with the next number until there
// are enough results.
type script struct{ most int }

func (script) Name() string { return "script" }

func (s script) GenerateContent(_ context.Context, req *model.LLMRequest, _ bool) iter.Seq2[*model.LLMResponse, error] {
	n := 1
	for _, c := range req.Contents {
		for _, p := range c.Parts {
			if p.FunctionResponse != nil {
				n++
			}
		}
	}
	answer := genai.NewContentFromText("done", genai.RoleModel)
	if n <= s.most {
		answer = genai.NewContentFromFunctionCall("add", map[string]any{"n": n}, genai.RoleModel)
	}
	return func(yield func(*model.LLMResponse, error) bool) { yield(&model.LLMResponse{Content: answer}, nil) }
}

// adder is a process in which an agent adds numbers until it is killed or done.
// It records each effect, and each result that was kept.
func adder(socket, notes string) {
	note := func(line string) { adaptertest.Note(notes, line) }
	type arg struct {
		N int `json:"n"`
	}
	add, err := functiontool.New(functiontool.Config{Name: "add", Description: "adds a number"}, func(ctx tool.Context, a arg) (arg, error) {
		note(fmt.Sprint("effect ", a.N))
		return a, ctx.State().Set("app:last", a.N)
	})
	if err != nil {
		panic(err)
	}
	root, err := llmagent.New(llmagent.Config{Name: "adder", Model: script{adaptertest.Numbers}, Tools: []tool.Tool{add}})
	if err != nil {
		panic(err)
	}
	r, err := runnerOf(root, &client.Client{Socket: socket, Deadline: 30 * time.Second})
	if err != nil {
		panic(err)
	}
	for e, err := range ask(context.Background(), r, "go on") {
		if err != nil {
			panic(err)
		}
		for _, p := range e.Content.Parts {
			if p.FunctionResponse != nil {
				note(fmt.Sprint("kept ", p.FunctionResponse.Response["n"]))
			}
			if p.Text != "" {
				note(p.Text)
			}
		}
	}
}

// TestKilledAgent: after an agent of the kit and its daemon are killed, the
// agent continues in the next process. A call whose result was kept is not made
// again.
func TestKilledAgent(t *testing.T) {
	d := adaptertest.Start(t)
	adaptertest.KilledLives(t, d, "adder", "done")
	got, err := service(d, "").Get(t.Context(), &session.GetRequest{AppName: "adder", UserID: "user-1", SessionID: "session-7"})
	adaptertest.Must(t, err)
	if last, err := got.Session.State().Get("app:last"); err != nil || last != float64(adaptertest.Numbers) {
		t.Errorf("the last number in the state is %v, %v", last, err)
	}
}

func TestConformance(t *testing.T) { adaptertest.Conformance(t) }

func TestDocs(t *testing.T) { adaptertest.Documented(t, "Google ADK for Go", 1) }
