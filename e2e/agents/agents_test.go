//go:build linux

package agents

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/hook"
)

// story is something that happens to a coding agent.
type story struct {
	name string
	play func(t *testing.T, p hook.Product)
	// without names the products that cannot play it here, and why.
	without map[hook.Product]string
}

var stories = []story{
	{"basic", basic, nil},
	{"failure", failure, nil},
	{"parallel", parallel, nil},
	{"subagent", subagent, map[hook.Product]string{hook.Codex: "its subagents are not in exec", hook.Gemini: "its subagents are not in -p"}},
	{"background", background, map[hook.Product]string{hook.Codex: "its commands end before their hooks"}},
	{"denied", denied, map[hook.Product]string{hook.Gemini: "it does not offer what it would deny"}},
	{"esc", esc, nil},
	{"compaction", compaction, map[hook.Product]string{hook.Codex: "exec does not compact"}},
	{"clear", clearing, map[hook.Product]string{hook.Codex: "not on a pty yet", hook.Gemini: "not on a pty yet"}},
	{"kill and go on", killed, nil},
	{"next session told", nextTold, nil},
	{"mcp", mcp, nil},
	{"drift", drift, nil},
	{"rewind and undo", rewound, nil},
	{"daemon away", away, nil},
}

// TestAgents plays each story with each product, and prints a table.
func TestAgents(t *testing.T) {
	for _, p := range hook.Products {
		if versionOf(p) == "" {
			t.Skipf("%s is not installed below %s: make e2e-agents installs it", packages[p], modules())
		}
	}
	results := map[string]string{}
	for _, s := range stories {
		for _, p := range hook.Products {
			name := s.name + " of " + string(p)
			if why := s.without[p]; why != "" {
				results[name] = "- " + why
				continue
			}
			results[name] = "not run"
			t.Run(name, func(t *testing.T) {
				results[name] = "FAILED"
				s.play(t, p)
				if !t.Failed() {
					results[name] = "ok"
				}
			})
		}
	}
	var table strings.Builder
	row := func(first string, cell func(hook.Product) string) {
		fmt.Fprintf(&table, "\n%-20s", first)
		for _, p := range hook.Products {
			fmt.Fprintf(&table, " %-36s", cell(p))
		}
	}
	row("", func(p hook.Product) string { return string(p) + " " + versionOf(p) })
	for _, s := range stories {
		row(s.name, func(p hook.Product) string { return results[s.name+" of "+string(p)] })
	}
	t.Log(table.String())
}

// gone makes a risky command that all products run.
const gone = "rm -r build"

func basic(t *testing.T, p hook.Product) {
	w := newWorld(t, p).serve()
	w.model.play(shell("mkdir -p build && printf hello-%d 42"), shell(gone), says("The folder is gone."))
	w.prompt("Remove the folder build.")
	run := w.want(ckpt.RunCompleted, "step succeeded", "step succeeded", "operation shell "+gone+" succeeded")
	expect.Equal(t, "the goal", string(run.Goal), "Remove the folder build.")
	w.wantTold("hello-42")
	last, err := w.client.Latest(t.Context(), ckpt.CheckpointFilter{Agent: run.Agent, Run: run.Run}, true)
	if err != nil || !strings.Contains(string(last.State), "The folder is gone.") {
		t.Errorf("the last checkpoint is %+v, error %v", last, err)
	}
}

func failure(t *testing.T, p hook.Product) {
	w := newWorld(t, p).serve()
	w.model.play(shell("sh -c 'printf broken-%d 42; exit 3'"), shell("rm gone.txt"), says("It failed."))
	w.prompt("Try it.")
	w.want(ckpt.RunCompleted, "step failed Exit code 3 broken-42", "step failed Exit code 1", "operation shell rm gone.txt failed")
	w.wantTold("broken-42", "cannot remove 'gone.txt'")
}

func parallel(t *testing.T, p hook.Product) {
	w := newWorld(t, p).serve()
	w.model.play(shell("mkdir build", "printf second-%d 42", "rm gone.txt"))
	w.prompt("Do three things.")
	w.want(ckpt.RunCompleted, "step ", "step ", "step ", "operation shell rm gone.txt failed")
	w.wantTold("second-42")
}

func subagent(t *testing.T, p hook.Product) {
	w := newWorld(t, p).serve()
	w.model.helper = []turn{shell("echo sub > sub.txt"), shell("rm sub.txt"), says("answer-of-the-helper")}
	w.model.play(turn{calls: []call{{tool: "Agent", args: map[string]any{"description": "look", "prompt": helperMark, "subagent_type": "general-purpose"}}}})
	w.prompt("Ask a helper.")
	main := w.want(ckpt.RunCompleted, "step succeeded")
	for _, run := range w.runs() {
		if run.ParentRun == ckpt.Ref(main.Run) {
			w.wantRun(&run, ckpt.RunCompleted, "step succeeded", "step succeeded", "operation shell rm sub.txt succeeded")
			w.wantTold("answer-of-the-helper")
			return
		}
	}
	t.Errorf("no run has the parent %s: %+v", main.Run, w.runs())
}

func background(t *testing.T, p hook.Product) {
	w := newWorld(t, p).serve()
	w.model.play(turn{calls: []call{{shell: "sleep 1; rm gone.txt", background: true}}}, says("It runs."))
	w.prompt("Do it in the background.")
	if p == hook.Gemini { // it tells nobody how it ended
		w.want(ckpt.RunInterrupted, "step interrupted", "operation shell rm gone.txt uncertain")
		w.wantTold("moved to background")
		return
	}
	w.want(ckpt.RunCompleted, "step failed Background command", "operation shell rm gone.txt failed")
	w.wantTold("failed with exit code 1")
}

func denied(t *testing.T, p hook.Product) {
	w := newWorld(t, p).serve()
	command, why := "shred old.txt", "has been denied"
	if p == hook.Codex {
		command, why = "rm -rf old.txt", "rm -f style commands are not permitted"
	}
	w.write("proj/old.txt", "x")
	w.model.play(shell(command), says("Not allowed."))
	args := w.command("Destroy it.", false)
	w.run(args)
	w.want(ckpt.RunCompleted, "step failed", "operation shell "+command+" failed")
	w.wantTold(why)
	if !w.exists("old.txt") {
		t.Error("the file is gone")
	}
}

func esc(t *testing.T, p hook.Product) {
	w := newWorld(t, p).serve()
	w.write("proj/old.txt", "x")
	w.model.play(shell("rm old.txt; echo going > going.txt; sleep 60"))
	s := w.interactive()
	s.enter("Go.")
	expect.Soon(t, "the call runs", func() bool { return w.exists("going.txt") })
	s.send("\x1b")
	// Gemini CLI shows no word for it, but reports it to its hook at once.
	expect.Soon(t, "the call is stopped", func() bool { return s.has("nterrupted") || p == hook.Gemini && w.uncertain() == 1 })
	w.model.play(shell("echo after-the-stop"), says("second-turn-done"))
	s.enter("Next.")
	expect.Soon(t, "the next turn has ended", func() bool { return s.has("second-turn-done") && w.uncertain() == 1 })
	s.leave()
	w.want(ckpt.RunInterrupted, "step failed the user stopped it", "step succeeded", "operation shell rm old.txt uncertain")
	w.wantTold(map[hook.Product]string{hook.ClaudeCode: "The user doesn't want to proceed with this tool use", hook.Codex: "aborted by user", hook.Gemini: "cancelled by user"}[p])
	if w.exists("old.txt") {
		t.Error("the file is there, so the call had done nothing")
	}
	w.model.play(says("A new day."))
	w.prompt("Something else.")
	w.wantTold("An earlier session of this project", `Risky and uncertain: "shell rm old.txt"`)
}

// uncertain counts the uncertain operations of the newest run.
func (w *world) uncertain() int {
	runs := w.runs()
	run := &runs[len(runs)-1]
	list, err := w.client.Operations(w.Context(), ckpt.RunRef{Agent: run.Agent, Run: run.Run}, ckpt.ListFilter{Status: string(ckpt.OperationUncertain)})
	expect.OK(w, err)
	return len(list.Operations)
}

func compaction(t *testing.T, p hook.Product) {
	w := newWorld(t, p).serve()
	w.model.play(shell("printf before-%d 42"), says("Halfway."))
	w.prompt("Remember the blue door.")
	if p == hook.ClaudeCode {
		w.model.play(says("A summary."))
		w.again("/compact")
		w.model.play(says("Going on."))
		w.again("Go on.")
		w.wantTold("Before the compaction", `Goal: "Remember the blue door."`)
	}
	for _, run := range w.runs() {
		list, err := w.client.Checkpoints(t.Context(), ckpt.CheckpointFilter{Agent: run.Agent, Run: run.Run})
		expect.OK(t, err)
		if len(list.Checkpoints) == 0 {
			t.Errorf("run %s has no checkpoint", run.Run)
		}
	}
	w.wantTold("before-42")
}

func clearing(t *testing.T, p hook.Product) {
	w := newWorld(t, p).serve()
	w.model.play(shell("echo one"), says("first-done"))
	s := w.interactive()
	s.enter("First.")
	expect.Soon(t, "the first turn has ended", func() bool { return s.has("first-done") })
	s.enter("/clear")
	expect.Soon(t, "the first session has ended", func() bool { return len(w.runs()) == 2 })
	w.model.play(shell("echo two"), says("second-done"))
	s.enter("Second.")
	expect.Soon(t, "the second turn has ended", func() bool { return s.has("second-done") })
	s.leave()
	runs := w.runs()
	w.wantRun(&runs[0], ckpt.RunCompleted, "step succeeded")
	w.wantRun(&runs[1], ckpt.RunCompleted, "step succeeded")
	if w.model.told("An earlier session of this project") {
		t.Error("the model was told of a session that had ended well")
	}
}

// killIn kills the product, with all that it has started, in a risky call.
func killIn(w *world) {
	w.Helper()
	w.write("proj/old.txt", "x")
	w.model.play(shell("rm old.txt; echo going > going.txt; sleep 60"))
	cmd, out := w.start(w.command("Clean the harbor.", false))
	expect.Soon(w, "the call runs", func() bool {
		if w.exists("going.txt") {
			return true
		}
		if syscall.Kill(cmd.Process.Pid, 0) != nil {
			w.Fatalf("it has ended: %s", out)
		}
		return false
	})
	expect.OK(w, syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL))
	_ = cmd.Wait()
	expect.Soon(w, "the run is interrupted", func() bool { runs := w.runs(); return len(runs) == 1 && runs[0].Status == ckpt.RunInterrupted })
	w.want(ckpt.RunInterrupted, "step interrupted", "operation shell rm old.txt uncertain")
}

func killed(t *testing.T, p hook.Product) {
	w := newWorld(t, p).serve()
	killIn(w)
	w.model.play(says("I go on."))
	w.again("Go on.")
	w.wantTold("This session stopped before it was done, and now continues.", `Goal: "Clean the harbor."`, `Risky and uncertain: "shell rm old.txt"`)
	expect.Equal(t, "the number of runs", len(w.runs()), 1)
	w.want(ckpt.RunInterrupted, "step interrupted", "operation shell rm old.txt uncertain") // nobody has said yet what became of it
}

func nextTold(t *testing.T, p hook.Product) {
	w := newWorld(t, p).serve()
	killIn(w)
	w.model.play(says("A new day."))
	w.prompt("Something else.")
	w.wantTold("An earlier session of this project", `Goal: "Clean the harbor."`)
	run := w.want(ckpt.RunCompleted)
	expect.Equal(t, "the goal of the next session", string(run.Goal), "Something else.")
}

func mcp(t *testing.T, p hook.Product) {
	w := newWorld(t, p).serve()
	prefix := map[hook.Product]string{hook.ClaudeCode: "mcp__ckptsidecar__", hook.Gemini: "mcp_ckptsidecar_"}[p]
	w.model.play(
		turn{calls: []call{{tool: prefix + "save_checkpoint", args: map[string]any{"state": map[string]any{"next": "paint the fence"}}}}},
		turn{calls: []call{{tool: prefix + "resume_run", args: map[string]any{}}}},
	)
	w.prompt("Save, and resume.")
	w.wantTold("Saved: checkpoint number 1")
	latest, err := w.client.Latest(t.Context(), ckpt.CheckpointFilter{Agent: "model"}, true)
	if err != nil || !strings.Contains(string(latest.State), "paint the fence") {
		t.Errorf("the checkpoint of the model is %+v, error %v", latest, err)
	}
	w.want(ckpt.RunCompleted, "step succeeded", "step succeeded")
}

func drift(t *testing.T, p hook.Product) {
	w := newWorld(t, p).serve()
	var turns []turn
	for range 6 {
		turns = append(turns, shell("cat nothere.txt"))
	}
	w.model.play(turns...)
	w.prompt("Read it.")
	w.wantTold("[ckptsidecar] Drift, ")
	page, err := w.client.Steps(t.Context(), ckpt.RunRef{Agent: hook.ProjectOf(w.proj).Agent, Run: w.runs()[0].Run}, ckpt.ListFilter{Status: string(ckpt.StepFailed)})
	if err != nil || len(page.Steps) < 3 { // Gemini CLI sees itself that it goes in circles, and stops
		t.Errorf("%d steps failed, error %v", len(page.Steps), err)
	}
}

// rewound goes back over three prompts of one session with Claude Code. The others begin a run for each prompt that they are
// given on the command line.
func rewound(t *testing.T, p hook.Product) {
	w := newWorld(t, p, "--files").serve()
	path := filepath.Join(w.proj, "story.txt")
	read := func() string { text, _ := os.ReadFile(path); return strings.TrimSpace(string(text)) }
	words, back, before := []string{"one", "two", "three", "four", "five"}, 3, "two"
	goesOn := func() { w.again("Go on.") }
	if p == hook.ClaudeCode { // goes back in the middle of the session, and undoes that after its end
		s := w.interactive()
		for _, word := range words {
			w.model.play(shell("echo "+word+" > story.txt"), says("wrote-"+word))
			s.enter("Write " + word + ".")
			expect.Soon(t, "the turn has ended", func() bool { return s.has("wrote-" + word) })
		}
		goesOn = func() {
			w.model.play(says("went-on"))
			s.enter("Go on.")
			expect.Soon(t, "the turn after the rewind has ended", func() bool { return s.has("went-on") })
			s.leave()
		}
	} else {
		words, back, before = []string{"one", "five"}, 1, "one"
		for _, word := range words {
			w.model.play(shell("echo " + word + " > story.txt"))
			w.prompt("Write " + word + ".")
		}
	}
	expect.Equal(t, "the file", read(), "five")
	expect.Soon(t, "the files of the end are kept", func() bool {
		runs := w.runs()
		last, err := w.client.Latest(t.Context(), ckpt.CheckpointFilter{Agent: runs[len(runs)-1].Agent, Run: runs[len(runs)-1].Run}, false)
		return err == nil && len(last.Trees) > 0 && (p != hook.ClaudeCode || last.Labels["event"] == "Stop")
	})
	w.ours("rewind", strconv.Itoa(back), "--yes")
	expect.Equal(t, "the file before the prompt", read(), before)
	goesOn()
	w.wantTold(fmt.Sprintf(`the user set files back to how they were before the prompt "Write %s." (number %d from the newest, of `, words[len(words)-back], back))
	w.wantTold(`Changed by it: "story.txt"`)
	w.ours("rewind", "--undo")
	expect.Equal(t, "the file after the undo", read(), "five")
	w.again("And on.")
	w.wantTold("which is taken back. What was done to these files after that is undone on disk. Changed by it: \"story.txt\"")
}

func away(t *testing.T, p hook.Product) {
	w := newWorld(t, p)
	w.model.play(shell("echo x > made.txt"), says("Made."))
	w.prompt("Make it.")
	if !w.exists("made.txt") {
		t.Error("the agent did not do its work")
	}
	if w.model.told("ckptsidecar]") {
		t.Error("the model was told something by nobody")
	}
}
