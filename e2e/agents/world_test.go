//go:build linux

// Package agents runs real coding agents, with a model of our own, against a real daemon: `make e2e-agents`.
package agents

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/hook"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/testenv"
)

// packages are the packages of the products in npm.
var packages = map[hook.Product]string{
	hook.ClaudeCode: "@anthropic-ai/claude-code", hook.Codex: "@openai/codex", hook.Gemini: "@google/gemini-cli",
}

// modules returns the folder into which npm has installed the products.
func modules() string {
	if folder := os.Getenv("CKPT_AGENTS"); folder != "" {
		return folder
	}
	folder, _ := filepath.Abs("node_modules") // the folder of this test
	return folder
}

// versionOf returns the version of a product, "" if it is not installed.
func versionOf(p hook.Product) string {
	text, err := os.ReadFile(filepath.Join(modules(), packages[p], "package.json"))
	var read struct {
		Version string `json:"version"`
	}
	if err != nil || json.Unmarshal(text, &read) != nil {
		return ""
	}
	return read.Version
}

// binary is the folder with the real program, built once.
var binary string

func TestMain(m *testing.M) {
	os.Exit(testenv.Run(func() int { return buildAndRun(m) }))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "agents")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	binary = dir
	if versionOf(hook.ClaudeCode) != "" {
		build := exec.Command("go", "build", "-o", filepath.Join(dir, "ckptsidecar"), "../../cmd/ckptsidecar")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			os.Stderr.Write(out)
			return 1
		}
	}
	return m.Run()
}

// world is a home with a project, a daemon, a model and one product.
type world struct {
	*testing.T
	product    hook.Product
	model      *model
	home, proj string
	socket     string
	client     *client.Client
}

// newWorld makes one. options are those of `hook install`.
func newWorld(t *testing.T, product hook.Product, options ...string) *world {
	t.Helper()
	home, err := os.MkdirTemp("", "w") // the path of a socket must be short
	expect.OK(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	w := &world{T: t, product: product, model: newModel(t), home: home, proj: filepath.Join(home, "proj"), socket: filepath.Join(home, "s")}
	expect.OK(t, os.Mkdir(w.proj, 0o755))
	w.client = &client.Client{Socket: w.socket}
	t.Cleanup(w.client.Close)
	w.configure()
	w.ours(append([]string{"hook", "install", "--for", string(product), "--yes", "--timeout", "20s", "--files-wait", "20s"}, options...)...)
	return w
}

// serve starts the daemon.
func (w *world) serve() *world {
	w.Helper()
	cmd := exec.Command(filepath.Join(binary, "ckptsidecar"), "serve", "--db", filepath.Join(w.home, "ckpt.db"), "--socket", w.socket)
	cmd.Env = w.environ()
	expect.OK(w, cmd.Start())
	w.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	expect.Soon(w, "the daemon is ready", func() bool { return w.client.Ready(w.Context()) == nil })
	return w
}

func (w *world) environ() []string {
	return []string{
		"HOME=" + w.home, "TMPDIR=" + w.home, "PATH=" + binary + ":" + os.Getenv("PATH"), "TERM=xterm-256color", "CKPTSIDECAR_SOCKET=" + w.socket,
		"CODEX_HOME=" + filepath.Join(w.home, ".codex"), "OPENAI_API_KEY=none",
		"GEMINI_API_KEY=none", "GOOGLE_GEMINI_BASE_URL=" + w.model.URL, "GEMINI_CLI_TRUST_WORKSPACE=true",
		"ANTHROPIC_BASE_URL=" + w.model.URL, "ANTHROPIC_API_KEY=none", "IS_SANDBOX=1", "ENABLE_TOOL_SEARCH=false", "DISABLE_TELEMETRY=1",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "DISABLE_ERROR_REPORTING=1",
	}
}

func (w *world) write(name string, content any) {
	w.Helper()
	text, is := content.(string)
	if !is {
		b, err := json.MarshalIndent(content, "", "  ")
		expect.OK(w, err)
		text = string(b)
	}
	path := filepath.Join(w.home, name)
	expect.OK(w, os.MkdirAll(filepath.Dir(path), 0o755))
	expect.OK(w, os.WriteFile(path, []byte(text), 0o600))
}

func (w *world) exists(name string) bool {
	_, err := os.Stat(filepath.Join(w.proj, name))
	return err == nil
}

// configure writes the product's own settings: our model, our MCP server, one rule that denies, and no question at its start.
func (w *world) configure() {
	server := map[string]any{"command": "ckptsidecar", "args": []string{"mcp", "--agent", "model"}, "env": map[string]any{"CKPTSIDECAR_SOCKET": w.socket}}
	switch w.product {
	case hook.ClaudeCode:
		w.write(".claude.json", map[string]any{
			"hasCompletedOnboarding": true, "bypassPermissionsModeAccepted": true, "theme": "dark",
			"customApiKeyResponses": map[string]any{"approved": []string{"none"}},
			"projects":              map[string]any{w.proj: map[string]any{"hasTrustDialogAccepted": true, "hasCompletedProjectOnboarding": true}},
			"mcpServers":            map[string]any{"ckptsidecar": server},
		})
		w.write(".claude/settings.json", map[string]any{"permissions": map[string]any{"deny": []string{"Bash(shred:*)"}}})
	case hook.Codex:
		w.write(".codex/config.toml", `model = "gpt-5.4"
model_provider = "stub"
approval_policy = "never"
sandbox_mode = "danger-full-access"
[model_providers.stub]
name = "stub"
base_url = "`+w.model.URL+`/v1"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
[projects."`+w.proj+`"]
trust_level = "trusted"
[mcp_servers.ckptsidecar]
command = "`+filepath.Join(binary, "ckptsidecar")+`"
args = ["mcp", "--agent", "model"]
env = { CKPTSIDECAR_SOCKET = "`+w.socket+`" }
`)
	case hook.Gemini:
		server["trust"] = true
		w.write(".gemini/settings.json", map[string]any{
			"security":   map[string]any{"auth": map[string]any{"selectedType": "gemini-api-key"}, "folderTrust": map[string]any{"enabled": false}},
			"mcpServers": map[string]any{"ckptsidecar": server},
		})
	}
}

// command returns the product's command line for a prompt. again goes on with its last session.
func (w *world) command(prompt string, again bool) []string {
	switch w.product {
	case hook.ClaudeCode:
		args := []string{w.claude(), "-p", "--dangerously-skip-permissions"}
		if again {
			args = append(args, "--continue")
		}
		return append(args, prompt)
	case hook.Codex:
		args := []string{filepath.Join(modules(), ".bin/codex"), "exec", "--dangerously-bypass-hook-trust", "--skip-git-repo-check"}
		if again {
			args = append(args, "resume", "--last")
		}
		return append(args, prompt)
	}
	args := []string{filepath.Join(modules(), ".bin/gemini"), "--yolo"}
	if again {
		args = append(args, "--resume", "latest")
	}
	return append(args, "-p", prompt)
}

// claude is the program itself: its launcher wants a newer Node than Debian has.
func (w *world) claude() string {
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	return filepath.Join(modules(), "@anthropic-ai/claude-code-linux-"+arch, "claude")
}

// start starts the product, as the leader of a group of processes.
func (w *world) start(args []string) (*exec.Cmd, *bytes.Buffer) {
	w.Helper()
	cmd, out := exec.Command(args[0], args[1:]...), new(bytes.Buffer)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = w.proj, w.environ(), out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second // a process in the background may hold its output
	expect.OK(w, cmd.Start())
	w.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	return cmd, out
}

// prompt gives a prompt to the product, and waits until it ends.
func (w *world) prompt(prompt string) { w.Helper(); w.run(w.command(prompt, false)) }

func (w *world) again(prompt string) { w.Helper(); w.run(w.command(prompt, true)) }

func (w *world) run(args []string) {
	w.Helper()
	cmd, out := w.start(args)
	if err := cmd.Wait(); err != nil && err != exec.ErrWaitDelay {
		w.Fatalf("%s: %v\n%s", w.product, err, out)
	}
}

// ours runs our own program in the project.
func (w *world) ours(args ...string) string {
	w.Helper()
	cmd := exec.Command(filepath.Join(binary, "ckptsidecar"), args...)
	cmd.Dir, cmd.Env = w.proj, w.environ()
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.Fatalf("ckptsidecar %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// runs returns the runs of the project, oldest first.
func (w *world) runs() []ckpt.Run {
	w.Helper()
	page, err := w.client.Runs(w.Context(), ckpt.RunFilter{Agent: hook.ProjectOf(w.proj).Agent})
	expect.OK(w, err)
	slices.Reverse(page.Runs)
	return page.Runs
}

// record is what a run has, one line for each step and operation.
func (w *world) record(run *ckpt.Run) (list []string) {
	w.Helper()
	ref := ckpt.RunRef{Agent: run.Agent, Run: run.Run}
	steps, err := w.client.Steps(w.Context(), ref, ckpt.ListFilter{})
	expect.OK(w, err)
	for _, s := range steps.Steps {
		list = append(list, strings.TrimSpace("step "+string(s.Status)+" "+strings.ReplaceAll(string(s.Error), "\n", " ")))
	}
	operations, err := w.client.Operations(w.Context(), ref, ckpt.ListFilter{})
	expect.OK(w, err)
	for _, o := range slices.Backward(operations.Operations) {
		list = append(list, "operation "+o.Name+" "+string(o.Status))
	}
	return list
}

// want fails the test unless the newest run of the session has this status and these lines.
func (w *world) want(status ckpt.RunStatus, lines ...string) *ckpt.Run {
	w.Helper()
	runs := w.runs()
	runs = slices.DeleteFunc(runs, func(r ckpt.Run) bool { return r.ParentRun != "" })
	if len(runs) == 0 {
		w.Fatal("there is no run")
	}
	run := &runs[len(runs)-1]
	w.wantRun(run, status, lines...)
	return run
}

func (w *world) wantRun(run *ckpt.Run, status ckpt.RunStatus, lines ...string) {
	w.Helper()
	expect.Equal(w, "the status of run "+run.Run, run.Status, status)
	got := w.record(run)
	for i := range max(len(got), len(lines)) {
		if i >= len(got) || i >= len(lines) || !strings.HasPrefix(got[i], lines[i]) {
			w.Errorf("run %s has\n%s\nnot\n%s", run.Run, strings.Join(got, "\n"), strings.Join(lines, "\n"))
			break
		}
	}
}

// wantTold fails the test unless the model was told something, and shows the line that told it.
func (w *world) wantTold(texts ...string) {
	w.Helper()
	for _, text := range texts {
		line := w.model.tolds(text)
		if line == "" {
			w.Errorf("the model was not told %q", text)
			continue
		}
		if len(line) > 200 {
			line = line[:200] + "…"
		}
		w.Logf("the model was told: %s", line)
	}
}

// begun returns the runs of the project, none if the agent is not known yet.
func (w *world) begun() []ckpt.Run {
	page, err := w.client.Runs(w.Context(), ckpt.RunFilter{Agent: hook.ProjectOf(w.proj).Agent})
	if err != nil {
		return nil
	}
	return page.Runs
}
