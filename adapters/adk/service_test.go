package adk_test

import (
	"bufio"
	"context"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ckptsidecar/ckptsidecar/adapters/adk"
	"github.com/ckptsidecar/ckptsidecar/client"
	"google.golang.org/adk/agent/llmagent"
	"google.golang.org/adk/model"
	"google.golang.org/adk/session"
	"google.golang.org/adk/session/sessiontestsuite"
	"google.golang.org/adk/tool"
	"google.golang.org/adk/tool/functiontool"
	"google.golang.org/genai"
)

// binary is the real daemon, built once.
var binary string

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "conform" {
		conform()
		return
	}
	if len(os.Args) > 3 && os.Args[1] == "adder" {
		adder(os.Args[2], os.Args[3])
		return
	}
	dir, err := os.MkdirTemp("", "adk")
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
	dir, err := os.MkdirTemp("", "a")
	must(t, err)
	d := &daemon{t: t, dir: dir}
	t.Cleanup(func() { d.kill(); _ = os.RemoveAll(dir) })
	d.start()
	return d
}

func (d *daemon) socket() string { return filepath.Join(d.dir, "s") }

// start starts it, and waits until it says that it is ready.
func (d *daemon) start() {
	d.t.Helper()
	d.cmd = exec.Command(binary, "serve", "--db", filepath.Join(d.dir, "ckpt.db"), "--socket", d.socket())
	d.cmd.Env = append(os.Environ(), "HOME="+d.dir)
	log, err := d.cmd.StderrPipe()
	must(d.t, err)
	must(d.t, d.cmd.Start())
	ready := make(chan bool, 1)
	go func() {
		lines := bufio.NewScanner(log)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "msg=ready") {
				ready <- true
			}
		}
		close(ready)
	}()
	if !<-ready {
		d.t.Fatal("the daemon does not get ready")
	}
}

func (d *daemon) kill() {
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait()
}

func (d *daemon) service(agent string) *adk.Service {
	c := &client.Client{Socket: d.socket(), SpoolDir: filepath.Join(d.dir, "spool"), Deadline: 30 * time.Second}
	d.t.Cleanup(c.Close)
	return &adk.Service{Client: c, Agent: agent}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestTheKitsOwnSuite runs the tests that the kit has for its services, each over
// an agent of its own.
func TestTheKitsOwnSuite(t *testing.T) {
	d := started(t)
	agents := 0
	sessiontestsuite.RunServiceTests(t, sessiontestsuite.SuiteOptions{SupportsUserProvidedSessionID: true}, func(*testing.T) session.Service {
		agents++
		return d.service(fmt.Sprint("suite-", agents))
	})
}

// Sessions that several processes write at once have all events and all state, and
// so have the processes that read them.
func TestManyWriters(t *testing.T) {
	d := started(t)
	ctx := t.Context()
	_, err := d.service("crowd").Create(ctx, &session.CreateRequest{AppName: "a", UserID: "u", SessionID: "s"})
	must(t, err)
	const writers, each = 4, 6
	var group sync.WaitGroup
	for who := range writers {
		group.Go(func() {
			s := d.service("crowd")
			got, err := s.Get(ctx, &session.GetRequest{AppName: "a", UserID: "u", SessionID: "s"})
			if err != nil {
				t.Error(err)
				return
			}
			for n := range each {
				key := fmt.Sprintf("%d.%d", who, n)
				e := session.NewEvent("i")
				e.Author, e.Actions.StateDelta = key, map[string]any{key: true, "app:" + key: true, "user:" + key: true}
				for range 2 { // the second time as after an answer that was lost
					if err := s.AppendEvent(ctx, got.Session, e); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	group.Wait()
	got, err := d.service("crowd").Get(ctx, &session.GetRequest{AppName: "a", UserID: "u", SessionID: "s"})
	must(t, err)
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
	for who := range writers { // in each writer's order
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
	d := started(t)
	ctx := t.Context()
	s := d.service("again")
	for range 2 {
		made, err := s.Create(ctx, &session.CreateRequest{AppName: "a", UserID: "u", SessionID: "s", State: map[string]any{"k": "v"}})
		must(t, err)
		must(t, s.AppendEvent(ctx, made.Session, session.NewEvent("i")))
		got, err := d.service("again").Get(ctx, &session.GetRequest{AppName: "a", UserID: "u", SessionID: "s"})
		must(t, err)
		if n := got.Session.Events().Len(); n != 1 {
			t.Errorf("there are %d events, want 1", n)
		}
		must(t, s.Delete(ctx, &session.DeleteRequest{AppName: "a", UserID: "u", SessionID: "s"}))
		if _, err := s.Get(ctx, &session.GetRequest{AppName: "a", UserID: "u", SessionID: "s"}); err == nil {
			t.Error("a session that was deleted is there")
		}
	}
}

// script stands in for a model: it calls the tool with the next number, until
// there are enough results.
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

const numbers = 10 // more than six lives can do

// adder is a process in which an agent adds numbers until it is killed or done. It
// notes each effect, and each result that is kept.
func adder(socket, notes string) {
	note := func(text string) {
		file, err := os.OpenFile(notes, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			panic(err)
		}
		defer file.Close()
		if _, err := fmt.Fprintln(file, text); err != nil {
			panic(err)
		}
		_, _ = os.Stdin.Read(make([]byte, 1)) // the test says when to go on; without one there is the end of the file
	}
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
	root, err := llmagent.New(llmagent.Config{Name: "adder", Model: script{numbers}, Tools: []tool.Tool{add}})
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

// An agent of the kit that is killed, and its daemon, goes on in the next process:
// no call is made again whose result was kept.
func TestKilledAgent(t *testing.T) {
	d := started(t)
	notes := filepath.Join(d.dir, "notes")
	lines := func() []string {
		text, _ := os.ReadFile(notes)
		return strings.Split(string(text), "\n")[:strings.Count(string(text), "\n")]
	}
	life := func() (*exec.Cmd, func()) {
		cmd := exec.Command(os.Args[0], "adder", d.socket(), notes)
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		must(t, err)
		must(t, cmd.Start())
		return cmd, func() { _, _ = in.Write([]byte{'\n'}) }
	}
	for kill := range 6 {
		from := len(lines())
		cmd, goOn := life()
		exited := make(chan error, 1)
		go func() { exited <- cmd.Wait() }()
		for more := 1; more <= 1+kill%3; more++ {
			for len(lines()) < from+more {
				select {
				case err := <-exited:
					t.Fatalf("life %d ended by itself: %v\n%s", kill, err, strings.Join(lines(), "\n"))
				case <-time.After(time.Millisecond):
				}
			}
			if kill == 4 && more == 1 {
				d.kill()
				d.start()
			}
			goOn()
		}
		_ = cmd.Process.Kill() // while it does what follows the last note
		<-exited
	}
	final := exec.Command(os.Args[0], "adder", d.socket(), notes)
	final.Stderr = os.Stderr
	must(t, final.Run())
	seen := lines()
	for n := 1; n <= numbers; n++ {
		kept := slices.Index(seen, fmt.Sprint("kept ", n))
		last := -1
		for i, line := range seen {
			if line == fmt.Sprint("effect ", n) {
				last = i
			}
		}
		if last < 0 || kept >= 0 && last > kept {
			t.Errorf("number %d: the last effect is line %d, and it was kept in line %d:\n%s", n, last, kept, strings.Join(seen, "\n"))
		}
	}
	if seen[len(seen)-1] != "done" { // the last "kept" may be missing: it was killed before it said so
		t.Errorf("it is not done:\n%s", strings.Join(seen, "\n"))
	}
	got, err := d.service("").Get(t.Context(), &session.GetRequest{AppName: "adder", UserID: "user-1", SessionID: "session-7"})
	must(t, err)
	if last, err := got.Session.State().Get("app:last"); err != nil || last != float64(numbers) {
		t.Errorf("the last number in the state is %v, %v", last, err)
	}
}

// TestDocs finds each Go snippet of its section of docs/ADAPTERS.md in the code
// that runs here.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/ADAPTERS.md")
	must(t, err)
	source, err := os.ReadFile("example_test.go")
	must(t, err)
	_, section, _ := strings.Cut(string(text), "\n## Google ADK for Go\n")
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
	if blocks < 1 {
		t.Error("no snippets were found")
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
