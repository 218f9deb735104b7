package genkit_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/adapters/genkit"
	"github.com/ckptsidecar/ckptsidecar/client"
	"github.com/firebase/genkit/go/core/x/session"
	gk "github.com/firebase/genkit/go/genkit"
)

// binary is the real daemon, built once.
var binary string

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "conform" {
		conform()
		return
	}
	if len(os.Args) > 3 && os.Args[1] == "counter" {
		counter(os.Args[2], os.Args[3])
		return
	}
	dir, err := os.MkdirTemp("", "genkit")
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
	dir, err := os.MkdirTemp("", "g")
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

// progress is the state of the session here.
type progress struct {
	Done  []int          `json:"done,omitempty"`
	Notes map[string]any `json:"notes,omitempty"`
}

var _ session.Store[progress] = (*genkit.Store[progress])(nil)

// What is seen of our store is what is seen of Genkit's own.
func TestStoreIsWhatGenkitsOwnIs(t *testing.T) {
	d := started(t)
	seen := func(store session.Store[progress]) (all []string) {
		look := func(id string) {
			data, err := store.Get(t.Context(), id)
			if data == nil {
				all = append(all, fmt.Sprint(id, " nil ", err))
				return
			}
			all = append(all, fmt.Sprint(id, " ", data.ID, " ", data.State, " ", err))
		}
		look("none")
		data := &session.Data[progress]{ID: "a", State: progress{Done: []int{1}, Notes: map[string]any{"k": []any{"v", 1.5, nil}}}}
		for _, id := range []string{"a", "a/b", "a_b", "日本", "", strings.Repeat("x", 400), strings.Repeat("x", 401)} {
			data.ID = id
			must(t, store.Save(t.Context(), id, data))
		}
		data.State.Done[0] = 7 // the caller's own to change
		look("a")
		must(t, store.Save(t.Context(), "a", &session.Data[progress]{ID: "a"}))
		for _, id := range []string{"a", "a/b", "a_b", "日本", "", strings.Repeat("x", 400), strings.Repeat("x", 401)} {
			look(id)
		}
		return all
	}
	mine := seen(&genkit.Store[progress]{Agent: d.open().Agent("same")})
	if theirs := seen(session.NewInMemoryStore[progress]()); !reflect.DeepEqual(mine, theirs) {
		t.Errorf("ours is seen as\n%s\nand theirs as\n%s", strings.Join(mine, "\n"), strings.Join(theirs, "\n"))
	}
}

func TestErrorsAreSaid(t *testing.T) {
	d := started(t)
	var without genkit.Store[progress]
	if err := without.Save(t.Context(), "a", &session.Data[progress]{}); err == nil || !strings.Contains(err.Error(), "has no Agent") {
		t.Error(err)
	}
	if _, err := without.Get(t.Context(), "a"); err == nil {
		t.Error("Get answers")
	}
	agent := d.open().Agent("errors")
	if err := (&genkit.Store[progress]{Agent: agent}).Save(t.Context(), "a", nil); ckpt.CodeOf(err) != ckpt.CodeInvalid {
		t.Errorf("a session without data: %v", err)
	}
	must(t, (&genkit.Store[string]{Agent: agent}).Save(t.Context(), "a", &session.Data[string]{ID: "a", State: "text"}))
	if _, err := (&genkit.Store[progress]{Agent: agent}).Get(t.Context(), "a"); ckpt.CodeOf(err) != ckpt.CodeInvalid {
		t.Errorf("a session of another type: %v", err)
	}
	d.kill()
	c := &client.Client{Socket: d.socket(), SpoolDir: filepath.Join(d.dir, "spool"), Deadline: -1}
	t.Cleanup(c.Close)
	if _, err := (&genkit.Store[progress]{Agent: c.Agent("errors")}).Get(t.Context(), "a"); err == nil {
		t.Error("a session that cannot be looked up is no error")
	}
}

const numbers = 12 // more than six lives can do

// counter is a process in which a flow counts in a session until it is killed or
// done. It notes each effect, and each number that is kept.
func counter(socket, notes string) {
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
	ctx := context.Background()
	sidecar := &client.Client{Socket: socket, Deadline: 30 * time.Second}
	count := gk.DefineFlow(gk.Init(ctx), "count", func(ctx context.Context, id string) (int, error) {
		s, err := opened(ctx, sidecar, id)
		if err != nil {
			return 0, err
		}
		for n := len(s.State().Done) + 1; n <= numbers; n++ {
			note(fmt.Sprint("effect ", n))
			state := s.State()
			state.Done = append(state.Done, n)
			if err := s.UpdateState(ctx, state); err != nil {
				return 0, err
			}
			note(fmt.Sprint("kept ", n))
		}
		return len(s.State().Done), nil
	})
	done, err := count.Run(ctx, "user/7")
	if err != nil {
		panic(err)
	}
	note(fmt.Sprint("done ", done))
}

// A flow that is killed, and its daemon, goes on in the next process: nothing is
// done again that was kept.
func TestKilledFlow(t *testing.T) {
	d := started(t)
	notes := filepath.Join(d.dir, "notes")
	lines := func() []string {
		text, _ := os.ReadFile(notes)
		return strings.Split(string(text), "\n")[:strings.Count(string(text), "\n")]
	}
	life := func() (*exec.Cmd, func()) {
		cmd := exec.Command(os.Args[0], "counter", d.socket(), notes)
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
	final := exec.Command(os.Args[0], "counter", d.socket(), notes)
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
	if seen[len(seen)-1] != fmt.Sprint("done ", numbers) { // the last "kept" may be missing: it was killed before it said so
		t.Errorf("it is not done:\n%s", strings.Join(seen, "\n"))
	}
}

// TestDocs finds each Go snippet of its section of docs/ADAPTERS.md in the code
// that runs here.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/ADAPTERS.md")
	must(t, err)
	source, err := os.ReadFile("example_test.go")
	must(t, err)
	_, section, _ := strings.Cut(string(text), "\n## Genkit for Go\n")
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
