package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// filesWorld is a daemon, and a folder whose files are kept.
type filesWorld struct {
	*supervised
	root string
}

func newFilesWorld(t *testing.T) *filesWorld {
	t.Helper()
	w := &filesWorld{supervised: newSupervised(t)}
	w.root = filepath.Join(w.dir, "project")
	must(t, os.Mkdir(w.root, 0o755))
	return w
}

// command runs the program and returns its output and its exit code.
func (w *filesWorld) command(args ...string) (out string, code int) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env, cmd.Dir = w.env, w.root
	text, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		w.t.Fatal(err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

func (w *filesWorld) do(args ...string) string {
	w.t.Helper()
	out, code := w.command(append([]string{"ckptsidecar"}, args...)...)
	if code != 0 {
		w.t.Fatalf("%q ended with %d: %s", args, code, out)
	}
	return out
}

// put makes the folder contain exactly these files.
func (w *filesWorld) put(files map[string]string) {
	w.t.Helper()
	entries, err := os.ReadDir(w.root)
	must(w.t, err)
	for _, e := range entries {
		must(w.t, os.RemoveAll(filepath.Join(w.root, e.Name())))
	}
	for path, text := range files {
		full := filepath.Join(w.root, path)
		must(w.t, os.MkdirAll(filepath.Dir(full), 0o755))
		must(w.t, os.WriteFile(full, []byte(text), 0o644))
	}
}

// has returns the files of the folder.
func (w *filesWorld) has() map[string]string {
	w.t.Helper()
	files := map[string]string{}
	must(w.t, filepath.WalkDir(w.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(w.root, path)
		text, err := os.ReadFile(path)
		files[name] = string(text)
		return err
	}))
	return files
}

// TestARestoreIsKilledInItsCalls kills a restore in a system call, for each kind of call that changes something.
// Afterwards every file is old or new, and the restore can be finished or undone.
func TestARestoreIsKilledInItsCalls(t *testing.T) {
	expect.OneThread(t)
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	w := newFilesWorld(t)
	was := map[string]string{"a": "1", "b/c": "2", "b/d": "3", "e/f/g": "4", "same": "5"}
	is := map[string]string{"a": "changed", "b/c": "changed", "new": "6", "n/e": "7", "same": "5"}
	w.put(was)
	w.do("policy", "set", "*", "routine_keep=0")
	first := strings.Fields(w.do("files", "snap", w.root, "--agent", "a"))[0]
	type moment struct {
		calls string
		at    int
	}
	var moments []moment
	for calls, most := range map[string]int{"renameat,renameat2": 9, "unlinkat": 7, "fsync": 14, "mkdirat": 3, "fchmod": 4, "linkat": 1} {
		for at := range most {
			moments = append(moments, moment{calls, at + 1})
		}
	}
	if !*long {
		r := rand.New(rand.NewPCG(*killSeed, 0))
		t.Logf("-kill-seed %d", *killSeed)
		slices.SortFunc(moments, func(a, b moment) int { return strings.Compare(a.calls, b.calls)*100 + a.at - b.at })
		r.Shuffle(len(moments), func(i, j int) { moments[i], moments[j] = moments[j], moments[i] })
		moments = moments[:8]
	}
	died, warned := 0, false
	for n, m := range moments {
		w.put(is)
		w.do("files", "snap", w.root, "--agent", "a")
		out, code := w.command(strace, "-f", "-qq", "-o", filepath.Join(t.TempDir(), "trace"), "-e", "trace="+m.calls,
			"-e", fmt.Sprintf("inject=%s:signal=KILL:when=%d", m.calls, m.at), "ckptsidecar", "files", "restore", first, "--yes", "--remove")
		if code != 0 {
			died++
		}
		w.oldOrNew(was, is, fmt.Sprintf("%v: %s", m, out))
		if left, _ := filepath.Glob(filepath.Join(w.dir, ".local", "state", "ckptsidecar", "files", "*.restore")); len(left) > 0 {
			warned = true
			w.sessionIsTold()
		}
		how, want := "--continue", was
		if n%2 == 1 {
			how, want = "--back", is
		}
		if out, code = w.command("ckptsidecar", "files", "restore", how, "--root", w.root); code == 3 {
			// It was killed before it began, or after it was done.
			if here := w.has(); !cmp.Equal(here, is) && !cmp.Equal(here, was) {
				t.Fatalf("%v: there is no journal, and\n%s", m, cmp.Diff(was, here))
			}
			continue
		}
		if here := w.has(); code != 0 || !cmp.Equal(here, want) {
			if how == "--back" || code != 0 {
				t.Fatalf("%v, then %s: exit %d\n%s\n%s", m, how, code, out, cmp.Diff(want, here))
			}
			t.Fatalf("%v, then %s:\n%s", m, how, cmp.Diff(want, here))
		}
	}
	t.Logf("%d of %d restores were killed", died, len(moments))
	if !warned {
		t.Log("none of them has left a journal")
	}
	w.do("verify", "--db", filepath.Join(w.dir, "ckpt.db"))
}

// sessionIsTold begins a session while a restore is unfinished.
func (w *filesWorld) sessionIsTold() {
	w.t.Helper()
	cmd := exec.Command("ckptsidecar", "hook", "--for", "claude-code", "--files", "--agent", "b")
	cmd.Env, cmd.Dir = w.env, w.root
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"session_id":"s","cwd":%q,"hook_event_name":"SessionStart","source":"startup"}`, w.root))
	if out, err := cmd.Output(); err != nil || !strings.Contains(string(out), "files restore --continue") {
		w.t.Fatalf("%v: the session was told %q", err, out)
	}
	if out, code := w.command("ckptsidecar", "files", "undo", w.root); code != 4 || !strings.Contains(out, "was interrupted") {
		w.t.Fatalf("an undo ended with %d: %s", code, out)
	}
}

func (w *filesWorld) oldOrNew(was, is map[string]string, when string) {
	w.t.Helper()
	here := w.has()
	for path, text := range here {
		if !strings.HasPrefix(filepath.Base(path), ".ckpt-") && text != was[path] && text != is[path] {
			w.t.Fatalf("%s: %s is %q, which is neither old nor new", when, path, text)
		}
	}
	if here["same"] != was["same"] {
		w.t.Fatalf("%s: a file is lost that was the same", when)
	}
}

// TestACheckpointOfTwoFolders: --root may name a folder as one does, or as the checkpoint does.
func TestACheckpointOfTwoFolders(t *testing.T) {
	t.Parallel()
	w := newFilesWorld(t)
	root, err := filepath.EvalSymlinks(w.root)
	must(t, err)
	var trees []string
	for _, folder := range []string{root, "/elsewhere"} {
		stored, err := w.client.PutTree(t.Context(), ckpt.TreeRequest{Agent: "a", Root: folder, Complete: true})
		must(t, err)
		trees = append(trees, stored.ID)
	}
	saved, err := w.client.Save(t.Context(), &ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: []byte("{}"), Trees: trees})
	must(t, err)
	for typed, want := range map[string]string{".": root, "../project/": root, root: root, "/elsewhere": "/elsewhere"} {
		if out := w.do("files", "list", saved.ID, "--root", typed); !strings.Contains(out, " in "+want+",") {
			t.Errorf("--root %s lists %s", typed, out)
		}
		var d ckpt.FilesDiff
		must(t, json.Unmarshal([]byte(w.do("files", "diff", saved.ID, saved.ID, "--root", typed, "--json")), &d))
		if d.Root != want {
			t.Errorf("--root %s compares %s", typed, d.Root)
		}
	}
	if out, code := w.command("ckptsidecar", "files", "list", saved.ID, "--root", ".."); code != 3 {
		t.Errorf("a folder of no tree: %d, %s", code, out)
	}
}

// TestAHostileRepository uses a repository with programs planted in its settings, links that lead outside, and
// names that other systems interpret differently. Nothing is run, and nothing outside is read or changed.
func TestAHostileRepository(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("there is no git here")
	}
	w := newFilesWorld(t)
	outside := filepath.Join(w.dir, "outside")
	must(t, os.Mkdir(outside, 0o755))
	must(t, os.WriteFile(filepath.Join(outside, "victim"), []byte("outside"), 0o644))
	ran := filepath.Join(w.dir, "ran")
	script := filepath.Join(w.root, "evil.sh")
	w.put(map[string]string{
		"evil.sh": "#!/bin/sh\necho \"$0 $*\" >> " + ran + "\ncat\n", "a": "1", "d/victim": "inside", ".gitattributes": "* filter=x\n",
		"GIT~1/config": "x", `c\.git\config`: "x", "line\nfeed": "x",
	})
	must(t, os.Chmod(script, 0o755))
	plain := func(args ...string) {
		t.Helper()
		if out, code := w.command(append([]string{git, "-c", "core.fsmonitor=false"}, args...)...); code != 0 {
			t.Fatalf("git %q: %s", args, out)
		}
	}
	plain("init", "-q")
	plain("add", "a", "d")
	for _, key := range []string{"core.fsmonitor", "filter.x.clean", "filter.x.smudge", "filter.x.process", "core.pager", "core.sshCommand", "diff.external"} {
		plain("config", key, script)
	}
	for _, hook := range []string{"post-index-change", "post-checkout", "reference-transaction"} {
		must(t, os.WriteFile(filepath.Join(w.root, ".git", "hooks", hook), []byte("#!/bin/sh\necho hook >> "+ran+"\n"), 0o755))
	}
	config := w.read(".git/config")
	w.do("policy", "set", "*", "routine_keep=0")
	first := strings.Fields(w.do("files", "snap", w.root, "--agent", "a"))[0]
	if list := w.do("files", "list", first); strings.Contains(list, "GIT~1/config\n") && !strings.Contains(list, "left out: GIT~1/config") || strings.Contains(list, "\nfeed") {
		t.Errorf("it lists %s", list)
	}
	must(t, os.WriteFile(filepath.Join(w.root, "a"), []byte("2"), 0o644))
	must(t, os.WriteFile(filepath.Join(w.root, "d", "victim"), []byte("changed"), 0o644))
	w.do("files", "snap", w.root, "--agent", "a")
	must(t, os.Rename(filepath.Join(w.root, "d"), filepath.Join(w.root, "e")))
	must(t, os.Symlink(outside, filepath.Join(w.root, "d")))
	for _, flags := range [][]string{{}, {"--overwrite", "--remove"}, {"--aside"}} {
		out, code := w.command(append([]string{"ckptsidecar", "files", "restore", first, "--yes"}, flags...)...)
		if code != 4 || !strings.Contains(out, "d is in the way") {
			t.Errorf("%q ended with %d: %s", flags, code, out)
		}
	}
	w.do("files", "snap", w.root, "--agent", "a")
	w.do("files", "restore", first, "a", "--yes")
	if got := w.read("a"); got != "1" {
		t.Errorf("a is %q", got)
	}
	if text, err := os.ReadFile(filepath.Join(outside, "victim")); err != nil || string(text) != "outside" {
		t.Errorf("outside is %q, %v", text, err)
	}
	if text, err := os.ReadFile(ran); err == nil {
		t.Errorf("a program of the repository was run:\n%s", text)
	}
	if w.read(".git/config") != config {
		t.Error("the settings of git have changed")
	}
}

func (w *filesWorld) read(path string) string {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.root, path))
	must(w.t, err)
	return string(text)
}

// TestHooksOfOtherProductsKeepFiles: Codex and Gemini CLI have other names for their hooks, and the files are kept
// too.
func TestHooksOfOtherProductsKeepFiles(t *testing.T) {
	for product, events := range map[string][3]string{
		"codex": {
			`{"session_id":"s","turn_id":"t","cwd":"%s","hook_event_name":"UserPromptSubmit","prompt":"first"}`,
			`{"session_id":"s","turn_id":"t","cwd":"%s","hook_event_name":"PreToolUse","tool_name":"shell","tool_input":{"command":["bash","-lc","rm -rf a"]},"tool_use_id":"c1"}`,
			`{"session_id":"s","turn_id":"t","cwd":"%s","hook_event_name":"Stop"}`,
		},
		"gemini": {
			`{"session_id":"s","timestamp":"2026-01-01T00:00:00Z","cwd":"%s","hook_event_name":"BeforeAgent","prompt":"first"}`,
			`{"session_id":"s","timestamp":"2026-01-01T00:00:00Z","cwd":"%s","hook_event_name":"BeforeTool","tool_name":"run_shell_command","tool_input":{"command":"rm -rf a"}}`,
			`{"session_id":"s","timestamp":"2026-01-01T00:00:00Z","cwd":"%s","hook_event_name":"AfterAgent","prompt_response":"done"}`,
		},
	} {
		t.Run(product, func(t *testing.T) {
			w := newFilesWorld(t)
			w.do("policy", "set", "*", "routine_keep=0")
			for n, event := range events {
				w.put(map[string]string{"a": fmt.Sprint(n), "b": "2"})
				cmd := exec.Command("ckptsidecar", "hook", "--for", product, "--files", "--agent", "a", "--debug", "--files-wait", "20s")
				cmd.Env, cmd.Dir, cmd.Stdin = w.env, w.root, strings.NewReader(fmt.Sprintf(event, w.root))
				if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "not done") {
					t.Fatalf("%v: %s", err, out)
				}
				expect.Soon(t, fmt.Sprintf("%d checkpoints have files", n+1), func() bool {
					return strings.Count(w.do("list", "a", "--run", "s", "--json"), `"trees":`) == n+1
				})
			}
			if out := w.do("rewind", "--agent", "a", "--root", w.root); !strings.Contains(out, "first") {
				t.Errorf("rewind lists %s", out)
			}
			out := w.do("rewind", "1", "--agent", "a", "--root", w.root, "--yes")
			if got := w.read("a"); got != "0" {
				t.Errorf("a is %q after %s", got, out)
			}
		})
	}
}

// TestRewindAsks: at a terminal rewind lists the prompts, asks which one, shows what would be done and asks for
// confirmation.
func TestRewindAsks(t *testing.T) {
	w := newFilesWorld(t)
	w.do("policy", "set", "*", "routine_keep=0")
	for n := range 2 {
		w.put(map[string]string{"a": fmt.Sprint(n)})
		cmd := exec.Command("ckptsidecar", "hook", "--for", "claude-code", "--files", "--agent", "a")
		cmd.Env, cmd.Dir = w.env, w.root
		cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"session_id":"s","cwd":%q,"hook_event_name":"UserPromptSubmit","prompt":"prompt %d"}`, w.root, n))
		must(t, cmd.Run())
		expect.Soon(t, fmt.Sprintf("%d checkpoints have files", n+1), func() bool {
			return strings.Count(w.do("list", "a", "--run", "s", "--json"), `"trees":`) == n+1
		})
	}
	env := map[string]string{}
	for _, v := range w.env {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	ask := func(answers string) called {
		var out, errs strings.Builder
		code := run(t.Context(), []string{"--socket", env["CKPTSIDECAR_SOCKET"], "rewind", "--agent", "a", "--root", w.root}, process{
			stdin: strings.NewReader(answers), stdout: &out, stderr: &errs, env: func(name string) string { return env[name] }, environ: w.env, interactive: true,
		})
		return called{code, out.String(), errs.String()}
	}
	for _, answers := range []string{"", "\n", "2\n", "2\nn\n"} {
		if got := ask(answers); got.code != 0 || !strings.Contains(got.stdout, "prompt 0") || w.read("a") != "1" {
			t.Errorf("to %q it ended with %d, and a is %q: %s%s", answers, got.code, w.read("a"), got.stdout, got.stderr)
		}
	}
	if got := ask("many\n"); got.code != 2 {
		t.Errorf("to nonsense it ended with %d: %s", got.code, got.stderr)
	}
	if got := ask("2\ny\n"); got.code != 0 || w.read("a") != "0" || !strings.Contains(got.stdout, "~ a") {
		t.Errorf("it ended with %d, and a is %q: %s%s", got.code, w.read("a"), got.stdout, got.stderr)
	}
	var restored struct {
		Checkpoints []struct {
			Labels map[string]string `json:"labels"`
		} `json:"checkpoints"`
	}
	must(t, json.Unmarshal([]byte(w.do("list", "a", "--run", "s", "--json")), &restored))
	if restored.Checkpoints[0].Labels["event"] != "files_restored" {
		t.Errorf("the newest checkpoint is %+v", restored.Checkpoints[0])
	}
}

// TestARestoreThatFailsGoesBack: if a call of a restore fails, the changes so far are undone automatically.
func TestARestoreThatFailsGoesBack(t *testing.T) {
	expect.OneThread(t)
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	w := newFilesWorld(t)
	was := map[string]string{"a": "1", "b/c": "2", "b/d": "3", "same": "5"}
	is := map[string]string{"a": "changed", "b/c": "changed", "b/d": "changed", "new": "6", "newer": "7", "same": "5"}
	w.put(was)
	w.do("policy", "set", "*", "routine_keep=0")
	first := strings.Fields(w.do("files", "snap", w.root, "--agent", "a"))[0]
	failed := 0
	for _, inject := range []string{
		"renameat:error=EIO:when=4", "renameat:error=EIO:when=5", "renameat:error=EIO:when=6", "renameat:error=ENOSPC:when=7",
		"unlinkat:error=EIO:when=1", "unlinkat:error=EIO:when=2", "fsync:error=EIO:when=4", "fsync:error=EIO:when=8",
	} {
		calls, _, _ := strings.Cut(inject, ":")
		w.put(is)
		w.do("files", "snap", w.root, "--agent", "a")
		out, code := w.command(strace, "-f", "-qq", "-o", filepath.Join(t.TempDir(), "trace"), "-e", "trace="+calls, "-e", "inject="+inject,
			"ckptsidecar", "files", "restore", first, "--yes", "--remove")
		want := is
		if code == 0 {
			want = was
		} else {
			failed++
		}
		here := w.has()
		if code != 0 && strings.Contains(out, "could not be saved in a checkpoint") {
			want = was // the restore was done, and only its record failed
		}
		// strace counts calls by thread, so the undo may have hit the failure as well. Then the output says so.
		said := strings.Contains(out, "undoing the restore failed too")
		if d := cmp.Diff(want, here); d != "" && !said {
			t.Errorf("%s ended with %d: %s\n%s", inject, code, out, d)
		}
		again, left := w.command("ckptsidecar", "files", "restore", "--continue", "--root", w.root)
		if said != (left == 0) || !said && left != 3 {
			t.Errorf("%s said %s\nand --continue ended with %d: %s", inject, out, left, again)
		}
		if here = w.has(); !cmp.Equal(here, want) && !(said && cmp.Equal(here, was)) {
			t.Errorf("%s, in the end: %s", inject, cmp.Diff(want, here))
		}
	}
	if failed < 3 {
		t.Errorf("only %d restores have failed", failed)
	}
}

// TestARestoreKnowsAllRuns: a session has written a file, and then many other runs have begun.
func TestARestoreKnowsAllRuns(t *testing.T) {
	w := newFilesWorld(t)
	w.do("policy", "set", "*", "routine_keep=0")
	w.put(map[string]string{"a": "1"})
	first := strings.Fields(w.do("files", "snap", w.root, "--agent", "a"))[0]
	step := ckpt.StepRequest{Key: "1", Name: "Write", Args: ckpt.JSON(`{"file_path":"new"}`), Status: ckpt.StepSucceeded}
	_, _, err := w.client.BeginStep(t.Context(), ckpt.RunRef{Agent: "a"}, step)
	must(t, err)
	w.put(map[string]string{"a": "1", "new": "2"})
	w.do("files", "snap", w.root, "--agent", "a")
	for i := range 200 {
		_, _, err := w.client.StartRun(t.Context(), ckpt.RunRequest{Agent: "a", Run: fmt.Sprint("other-", i)})
		must(t, err)
	}
	w.do("files", "restore", first, "--yes")
	if d := cmp.Diff(map[string]string{"a": "1"}, w.has()); d != "" {
		t.Error(d)
	}
}

// TestRewindOfASessionWithManySubAgents: they have changed after the session itself.
func TestRewindOfASessionWithManySubAgents(t *testing.T) {
	w := newFilesWorld(t)
	w.put(map[string]string{"a": "1"})
	w.do("files", "snap", w.root, "--agent", "a", "--run", "session")
	for i := range 60 {
		_, _, err := w.client.StartRun(t.Context(), ckpt.RunRequest{Agent: "a", Run: fmt.Sprint("sub-", i), ParentRun: "session"})
		must(t, err)
	}
	if out := w.do("rewind", "--agent", "a", "--json"); !strings.Contains(out, `"run": "session"`) {
		t.Errorf("rewind said %s", out)
	}
}
