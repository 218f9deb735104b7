package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// evil is a text that could mislead a person who reads a field on a terminal: it clears the screen, colors and
// hides text, reverses its direction, begins a separate line and sets the clipboard.
const evil = "\x1b[2J\x1b[31m\u009b1A\u0085\x7f\r\u202e\u2066\u200b\nFORGED line\x1b]52;c;Zm9yZ2Vk\x07"

// raw are the characters of evil that no output may contain.
const raw = "\x1b\u009b\u0085\x7f\r\u202e\u2066\u200b\x07"

// evilWorld is a real daemon, and a proxy in front of it that adds evil to every text of every answer.
type evilWorld struct {
	folder, db     string
	daemon, socket string // the socket of the daemon, and the socket of the proxy
	client         *client.Client
	columns        string // the reported width of the terminal; "" for no terminal
}

func newEvilWorld(t *testing.T) *evilWorld {
	t.Helper()
	folder, err := os.MkdirTemp("", "esc") // the path of a socket must be short
	must(t, err)
	w := &evilWorld{folder: folder, db: filepath.Join(folder, "ckpt.db"), daemon: filepath.Join(folder, "d"), socket: filepath.Join(folder, "p")}
	w.client = &client.Client{Socket: w.daemon}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan int)
	var log bytes.Buffer
	go func() {
		ended <- run(ctx, []string{"serve", "--db", w.db, "--socket", w.daemon, "--set", "monitor.interval=50ms"}, process{
			stdin: strings.NewReader(""), stdout: &log, stderr: &log, env: w.env, environ: nil,
		})
	}()
	t.Cleanup(func() {
		w.client.Close()
		stop()
		if code := <-ended; code != cli.ExitDone {
			t.Errorf("the daemon ended with %d: %s", code, &log)
		}
		_ = os.RemoveAll(folder)
	})
	expect.Soon(t, "the daemon is ready", func() bool { return w.client.Ready(t.Context()) == nil })
	w.proxy(t)
	return w
}

func (w *evilWorld) env(name string) string {
	return map[string]string{"HOME": w.folder, "XDG_STATE_HOME": w.folder, "COLUMNS": w.columns}[name]
}

// proxy forwards requests and spoils the answers.
func (w *evilWorld) proxy(t *testing.T) {
	t.Helper()
	l, err := net.Listen("unix", w.socket)
	must(t, err)
	back := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", w.daemon)
	}}
	server := &http.Server{Handler: http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		r.URL.Scheme, r.URL.Host = "http", "ckptsidecar"
		r.RequestURI = ""
		answer, err := back.RoundTrip(r)
		if err != nil {
			http.Error(out, err.Error(), http.StatusBadGateway)
			return
		}
		defer answer.Body.Close()
		var body io.Reader = answer.Body
		if r.URL.Path == "/v1/changes" { // this answer does not end
			body = io.MultiReader(io.LimitReader(body, 1), strings.NewReader(`"what":"run","owner":"uid:1","agent":"a","run":"r","n":1}`+"\n"))
		}
		text, _ := io.ReadAll(body)
		if strings.Contains(answer.Header.Get("Content-Type"), "json") && !strings.HasSuffix(r.URL.Path, "/state") {
			text = spoilAnswer(answer.Header, text)
		}
		for name, values := range answer.Header {
			out.Header()[name] = values
		}
		out.Header().Set("Content-Length", strconv.Itoa(len(text)))
		out.WriteHeader(answer.StatusCode)
		_, _ = out.Write(text)
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close(); back.CloseIdleConnections() })
}

// spoilAnswer spoils an answer except for the state in it, whose position is in the header.
func spoilAnswer(header http.Header, text []byte) []byte {
	const name, hole = "Ckpt-State-Range", `"in place of the state"`
	var first, last int
	if n, _ := fmt.Sscanf(header.Get(name), "%d-%d", &first, &last); n != 2 {
		return spoiled(text)
	}
	state := text[first : last+1]
	text = spoiled(slices.Concat(text[:first], []byte(hole), text[last+1:]))
	at := bytes.Index(text, []byte(hole))
	header.Set(name, fmt.Sprintf("%d-%d", at, at+len(state)-1))
	return slices.Concat(text[:at], state, text[at+len(hole):])
}

// spoiled adds evil to every text in a JSON document or in lines of JSON documents.
func spoiled(text []byte) []byte {
	var out bytes.Buffer
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	for {
		var v any
		if err := dec.Decode(&v); err != nil {
			return out.Bytes()
		}
		enc := json.NewEncoder(&out)
		enc.SetEscapeHTML(false)
		_ = enc.Encode(spoil(v, ""))
	}
}

var (
	// made are the members whose inner names are chosen by users.
	made = []string{"labels", "metadata", "payload", "args", "result", "evidence"}
	// unspoilt are members that the command checks or sends back. Those that contain text already contain evil.
	unspoilt = []string{"next", "patch", "state", "state_base64", "sha256", "memory_diff", "content_type", "false_alarms"}

	// checkedForm matches texts in a form that the command checks: durations and shares.
	checkedForm = regexp.MustCompile(`^[0-9.]+(ms|[smhd])([0-9.]+[smh])*$|^[0-9.]+%$`)
)

func spoil(v any, name string) any {
	switch v := v.(type) {
	case string:
		if _, err := time.Parse(time.RFC3339, v); err == nil || checkedForm.MatchString(v) {
			return v
		}
		return v + evil
	case []any:
		for i := range v {
			v[i] = spoil(v[i], name)
		}
		return v
	case map[string]any:
		out := map[string]any{}
		for key, value := range v {
			if slices.Contains(unspoilt, key) {
				out[key] = value
				continue
			}
			inside := key
			if slices.Contains(made, name) {
				key, inside = key+evil, name
			}
			out[key] = spoil(value, inside)
		}
		return out
	}
	return v
}

// said runs a command through the proxy.
func (w *evilWorld) said(t *testing.T, stdin string, args ...string) called {
	t.Helper()
	var out, errs bytes.Buffer
	if !slices.Contains(args, "--socket") {
		args = append([]string{"--socket", w.socket}, args...)
	}
	code := run(t.Context(), args, process{stdin: strings.NewReader(stdin), stdout: &out, stderr: &errs, env: w.env})
	return called{code, out.String(), errs.String()}
}

// filled puts something into every list that a command shows, with evil wherever the daemon accepts it.
func (w *evilWorld) filled(t *testing.T) (ids []string, prompt, finding string) {
	t.Helper()
	ctx, c := t.Context(), w.client
	owner := exec.Command("sleep", "1000")
	must(t, owner.Start())
	t.Cleanup(func() { _ = owner.Process.Kill() })
	start := ckpt.RunRequest{Agent: "a", Run: "main", PID: owner.Process.Pid, Workflow: "flow", Goal: "goal" + evil, ExternalSession: "s", Labels: ckpt.Labels{"k": "v"}}
	_, _, err := c.StartRun(ctx, start)
	must(t, err)
	ref := ckpt.RunRef{Agent: "a", Run: "main"}
	for n := range 3 {
		text, err := json.Marshal(map[string]any{"key" + evil: fmt.Sprint("value", n, evil), "list": []any{n, evil}, "n": n})
		must(t, err)
		saved, err := c.Save(ctx, &ckpt.SaveRequest{
			Agent: "a", Run: "main", Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: text,
			Labels: ckpt.Labels{"k": "v"}, Metadata: json.RawMessage(`{"m":"x\u202e"}`),
		})
		must(t, err)
		ids = append(ids, saved.ID)
	}
	quoted, err := json.Marshal(map[string]string{"a" + evil: evil})
	must(t, err)
	_, _, err = c.BeginStep(ctx, ref, ckpt.StepRequest{Key: "done", Name: "tool", Args: quoted, Status: ckpt.StepSucceeded, Result: quoted})
	must(t, err)
	_, _, err = c.BeginStep(ctx, ref, ckpt.StepRequest{Key: "failed", Name: "tool", Status: ckpt.StepFailed, Error: "error" + evil})
	must(t, err)
	_, _, err = c.BeginStep(ctx, ref, ckpt.StepRequest{Key: "open", Name: "tool", Args: quoted})
	must(t, err)
	_, _, err = c.Append(ctx, ref, []ckpt.NewEvent{{Type: "type", Payload: quoted}}, "")
	must(t, err)
	_, _, err = c.BeginOperation(ctx, ref, ckpt.OperationRequest{Key: "pay", Name: "pay", State: quoted})
	must(t, err)
	posted, _, err := c.PostFinding(ctx, "a", ckpt.FindingRequest{Run: "main", Rule: "mine", Severity: ckpt.SeverityCritical, Message: "message\u202e\u2066\u200b", Evidence: quoted})
	must(t, err)
	must(t, owner.Process.Kill())
	_ = owner.Wait()
	expect.Soon(t, "the operation is uncertain", func() bool {
		r, err := c.Run(ctx, ref)
		return err == nil && r.Status == ckpt.RunInterrupted
	})
	plan, _, err := c.Resume(ctx, ckpt.ResumeRequest{Agent: "a", Run: "main"})
	must(t, err)
	if plan.Prompt == nil {
		t.Fatalf("no prompt: %+v", plan)
	}
	return ids, plan.Prompt.ID, posted.ID
}

// silent are the commands that print no text of users or models, and the reasons.
var silent = map[string]string{
	"serve": "its log quotes what is no printable text", "mcp": "speaks a protocol", "console": "serves pages, which escape by themselves", "hook": "is for programs", "hook handle": "speaks to a program",
	"completion": "prints the grammar", "help": "the same", "config": "has subcommands", "config show": "prints the operator's own settings", "config check": "the same",
	"config example": "prints defaults", "demo": "makes its own data", "export": "writes data", "restore": "writes data",
	"hook install": "shows the user's own file", "hook uninstall": "the same", "run": "has subcommands", "step": "the same", "operation": "the same", "token": "the same", "otlp": "the same", "otlp env": "prints the operator's own settings",
	"policy": "the same", "service": "the same", "bench": "measures", "version": "prints constants",
	"restore-backup": "names files that the operator has typed", "audit": "the same", "audit archive": "names a file of the operator's own folder", "exec": "prints what resume prints, by the same function", "import": "has subcommands",
}

// sendsBack are the commands that send back what they have read. The daemon and the command refuse evil in it.
var sendsBack = map[string]bool{"tag": true, "policy": true}

// TestNothingControlsATerminal checks the output of each command when every field of every answer contains evil.
func TestNothingControlsATerminal(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	w := newEvilWorld(t)
	ids, prompt, finding := w.filled(t)
	exported := filepath.Join(w.folder, "a.ckpt")
	file, err := os.Create(exported)
	must(t, err)
	must(t, w.client.Export(t.Context(), "a", file))
	must(t, file.Close())
	engine := evilEngine(t)
	spool := filepath.Join(w.folder, "spool"+evil)
	must(t, os.MkdirAll(spool, 0o700))
	calls := [][]string{
		{"list", "a"}, {"list", "a", "--tree"}, {"tree", "a"}, {"show", ids[0]}, {"show", ids[0], "--state"}, {"diff", ids[1], ids[2]},
		{"files", "list", ids[0]}, {"files", "diff", ids[1], ids[2]}, {"files", "restore", ids[0]}, {"files", "undo", w.folder}, {"files", "snap", w.folder, "--agent", "a", "--tree-only"}, {"rewind", "--agent", "a", "--root", w.folder},
		{"diff", ids[1], ids[2], "-u"}, {"diff", ids[1], ids[2], "-s"}, {"tag", ids[0], "new=1"}, {"pin", ids[0]}, {"unpin", ids[0]},
		{"runs"}, {"run", "show", "a"}, {"steps", "a"}, {"operations", "a"}, {"events", "a"}, {"events", "list", "a"}, {"drift", "a"}, {"drift", "show", "a", "--closed"},
		{"drift", "rules"}, {"drift", "rules", "a"}, {"drift", "evaluate"}, {"drift", "explain", finding}, {"prompts"}, {"prompts", "list", "--answered"}, {"prompts", "show", prompt},
		{"prompts", "ask", "a", "question", "--no-wait"}, {"notify"}, {"notify", "status"}, {"notify", "test"},
		{"token", "create", "--note", "n"}, {"token", "list"}, {"token", "revoke", "0123456789abcdef"},
		{"agents"}, {"log", "a"}, {"policy", "get", "a"}, {"policy", "set", "a", "routine_keep=4"}, {"status"}, {"overview"}, {"changes", "-n", "1"}, {"prune", "--ahead"}, {"audit", "list"}, {"audit", "check"}, {"drift", "findings"}, {"run", "recorder", "a"}, {"doctor", "--db", w.db}, {"prune", "--dry-run"},
		{"fleet", "check", engine}, {"fleet", "check", engine, "--accept"}, {"fleet", "migrate", engine}, {"fleet", "hosts", engine}, {"fleet", "verify", engine}, {"fleet", "runs", engine},
		{"fleet", "status"}, {"fleet", "hosts"}, {"fleet", "runs"}, {"runs", "--fleet"}, {"fleet", "claim", "--host", "x", "--all"},
		{"fleet", "keys", "add", "--file", w.folder + "/keys"}, {"fleet", "keys", "list", "--file", w.folder + "/keys"},
		{"fleet", "release", "a"}, {"fleet", "drain", "--undo"}, {"fleet", "forget", "x", engine}, {"fleet", "claim", "a"},
		{"resume", "a", "--dry-run"}, {"resume", "a"}, {"operation", "resolve", "a", "pay", "it_did_not"}, {"drift", "dismiss", finding},
		{"prompts", "answer", prompt, "resume"}, {"prompts", "wait", prompt}, {"resume", "a", "--force"}, {"run", "start", "a", "--run", "r2", "--goal", evil}, {"run", "beat", "a"},
		{"step", "begin", "a", "again"}, {"step", "begin", "a", "done"}, {"step", "finish", "a", "again"}, {"step", "record", "a", "whole"},
		{"operation", "begin", "a", "op"}, {"operation", "succeed", "a", "op"}, {"operation", "begin", "a", "op2"}, {"operation", "fail", "a", "op2"},
		{"events", "append", "a", "type", `{"x":"\u202e"}`}, {"save", "a"}, {"run", "end", "a", "failed", "--error", evil},
		{"delete", ids[0]}, {"import", exported, "--agent", "b"}, {"prune"}, {"verify", "--db", w.db}, {"backup", filepath.Join(w.folder, "copy.db"), "--db", w.db},
		{"spool", "--dir", spool}, {"spool", "list", "--dir", spool}, {"spool", "replay", "--dir", spool}, {"service", "status"}, {"chown", "uid:4000000001", "uid:4000000002", "--dry-run"}, {"erase", "a", "--yes"}, {"show", ids[0]},
	}
	typed := [][]string{ // errors repeat what a person has typed
		{"show", evil}, {"list", evil}, {evil}, {"policy", "set", "a", evil}, {"save", "a", evil}, {"import", evil}, {"restore", "a", "--kind", evil},
		{"verify", "--db", evil}, {"serve", "--config", evil}, {"run", "end", "a", evil}, {"--socket", evil, "status"},
	}
	shown := 0
	for n, args := range slices.Concat(calls, typed) {
		t.Run(strings.ToValidUTF8(strings.Join(args, " "), "?"), func(t *testing.T) {
			got := w.said(t, `{"saved":true}`, args...)
			if n < len(calls) && !sendsBack[args[0]] && (got.code == cli.ExitUsage || strings.Contains(got.stderr, "cannot be understood")) {
				t.Errorf("exit %d: %s", got.code, got.stderr)
			}
			if strings.Contains(got.stdout+got.stderr, "FORGED") {
				shown++
			}
			for name, text := range map[string]string{"standard output": got.stdout, "standard error": got.stderr} {
				if at := strings.IndexAny(text, raw); at >= 0 {
					t.Errorf("%s has a control character: %q", name, text[max(0, at-60):min(len(text), at+20)])
				}
				if at := strings.Index(text, "\nFORGED"); at >= 0 {
					t.Errorf("%s has a line that a field has begun: %q", name, text[max(0, at-60):min(len(text), at+20)])
				}
			}
		})
	}
	if shown < len(calls)/2 {
		t.Errorf("only %d of %d commands have shown a field", shown, len(calls))
	}
	covered := func(path string) bool {
		return slices.ContainsFunc(calls, func(args []string) bool { return strings.HasPrefix(strings.Join(args, " ")+" ", path+" ") })
	}
	for _, path := range commandPaths(t) {
		first, _, _ := strings.Cut(path, " ")
		if !covered(path) && silent[path] == "" && silent[first] == "" {
			t.Errorf("%s is not tried", path)
		}
	}
}

// TestTextGoesThroughTerm: code that prints text for people escapes the fields in it.
func TestTextGoesThroughTerm(t *testing.T) {
	files, err := filepath.Glob("*.go")
	must(t, err)
	for _, file := range files {
		constant := strings.HasPrefix(file, "completion") || file == "man.go"
		if constant || strings.HasSuffix(file, "_test.go") {
			continue
		}
		if text := read(t, file); strings.Contains(text, "fmt.Fp") || strings.Contains(text, "io.WriteString(a.") {
			t.Errorf("%s prints by itself: term.Printf, term.Println and term.Block escape", file)
		}
	}
}

// TestJSONStaysExact: only text for people is escaped. Output for programs is exact.
func TestJSONStaysExact(t *testing.T) {
	w := newEvilWorld(t)
	text := `{"a":"x` + "\u202e\u0085" + `"}`
	_, err := w.client.Save(t.Context(), &ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: []byte(text)})
	must(t, err)
	var out, errs bytes.Buffer
	direct := process{stdin: strings.NewReader(""), stdout: &out, stderr: &errs, env: w.env}
	if code := run(t.Context(), []string{"restore", "a", "--socket", w.daemon}, direct); code != cli.ExitDone || out.String() != text {
		t.Errorf("exit %d, restored %q, want %q; %s", code, &out, text, &errs)
	}
	out.Reset()
	goal := "goal" + evil
	_, _, err = w.client.StartRun(t.Context(), ckpt.RunRequest{Agent: "a", Run: "r", Goal: ckpt.Ref(goal)})
	must(t, err)
	var shape ckpt.Run
	if code := run(t.Context(), []string{"run", "show", "a", "--run", "r", "--json", "--socket", w.daemon}, direct); code != cli.ExitDone {
		t.Fatalf("exit %d: %s", code, &errs)
	}
	if err := json.Unmarshal(out.Bytes(), &shape); err != nil || string(shape.Goal) != goal {
		t.Errorf("the goal is %q, error %v", shape.Goal, err)
	}
}
