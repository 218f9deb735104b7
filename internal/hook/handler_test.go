package hook_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/hook"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// recorded returns the inputs of a product's session, in order.
func recorded(t testing.TB, product hook.Product) (inputs []*hook.Input, names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", string(product), "*.json"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d inputs of %s, error %v", len(files), product, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		in, err := hook.Read(text)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		inputs, names = append(inputs, in), append(names, filepath.Base(file))
	}
	return inputs, names
}

// play returns the answers of the hooks, by the name of the input; "" means no
// output.
func play(t testing.TB, h *hook.Handler, inputs []*hook.Input, names []string) map[string]string {
	t.Helper()
	said := map[string]string{}
	for i, in := range inputs {
		out, err := h.Handle(t.Context(), in)
		if err != nil {
			t.Fatalf("%s: %v", names[i], err)
		}
		if len(out) > 0 {
			said[names[i]] = contextOf(t, in.Event, out)
		}
	}
	return said
}

// contextOf returns the text for the model, in the one form that all three
// products document.
func contextOf(t testing.TB, event string, out []byte) string {
	t.Helper()
	var form struct {
		Specific struct {
			Event   string `json:"hookEventName"`
			Context string `json:"additionalContext"`
		} `json:"hookSpecificOutput"`
	}
	if err := jsontext.Decode(out, &form); err != nil || form.Specific.Event != event || form.Specific.Context == "" {
		t.Fatalf("%s is answered %s, error %v", event, out, err)
	}
	return form.Specific.Context
}

// rows describes a run's steps, operations and checkpoints.
func rows(t testing.TB, h *hook.Handler, run string) (list []string) {
	t.Helper()
	ref := ckpt.RunRef{Agent: h.Agent, Run: run}
	r, err := h.Client.Run(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	list = append(list, fmt.Sprintf("run %s workflow=%s goal=%q parent=%q", r.Status, r.Workflow, r.Goal, r.ParentRun))
	steps, err := h.Client.Steps(t.Context(), ref, ckpt.ListFilter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps.Steps {
		list = append(list, strings.TrimSpace(fmt.Sprintf("step %s %s %s", s.Name, s.Status, strings.ReplaceAll(string(s.Error), "\n", " "))))
	}
	operations, err := h.Client.Operations(t.Context(), ref, ckpt.ListFilter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range operations.Operations {
		list = append(list, fmt.Sprintf("operation %q %s", o.Name, o.Status))
	}
	saved, err := h.Client.Checkpoints(t.Context(), ckpt.CheckpointFilter{Agent: h.Agent, Run: run})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range slices.Backward(saved.Checkpoints) {
		list = append(list, fmt.Sprintf("checkpoint %s %s", c.Kind, c.Labels["event"]))
	}
	return list
}

func TestASessionOfClaudeCode(t *testing.T) {
	h := newHandler(t)
	inputs, names := recorded(t, hook.ClaudeCode)
	said := play(t, h, inputs, names)
	run := inputs[0].Session
	want := []string{
		`run completed workflow=claude-code goal="Make the checkout tests pass and push" parent=""`,
		"step Read succeeded",
		"step Bash failed Exit code 1 1 failed, 4 passed",
		"step TodoWrite succeeded",
		"step Bash succeeded",
		`operation "shell git push origin main" succeeded`,
		"checkpoint routine PreCompact",
		"checkpoint routine Stop",
		"checkpoint routine SessionEnd",
	}
	if diff := cmp.Diff(want, rows(t, h, run)); diff != "" {
		t.Errorf("rows: %s", diff)
	}
	sub := []string{`run completed workflow=claude-code goal="" parent="` + run + `"`, "step Grep succeeded"}
	if diff := cmp.Diff(sub, rows(t, h, run+".def456")); diff != "" {
		t.Errorf("rows of the subagent: %s", diff)
	}
	if len(said) != 1 {
		t.Errorf("said %v", said)
	}
	for _, part := range []string{"Before the compaction", `Goal: "Make the checkout tests pass and push"`, `\"content\":\"Fix total\"`, "after 4 tool calls"} {
		if !strings.Contains(said["12-session-start-compact.json"], part) {
			t.Errorf("after the compaction it is told %q, without %q", said["12-session-start-compact.json"], part)
		}
	}
	last, err := h.Client.Latest(t.Context(), ckpt.CheckpointFilter{Agent: h.Agent, Run: run}, true)
	if err != nil {
		t.Fatal(err)
	}
	var state hook.Snapshot
	if err := jsontext.Decode(last.State, &state); err != nil {
		t.Fatal(err)
	}
	if state.Folder != "/home/kim/shop" || state.ToolCalls != 4 || state.LastMessage != "The tests pass and main is pushed." || !strings.HasSuffix(state.Transcript.Path, "3ca0.jsonl") {
		t.Errorf("the state is %s", last.State)
	}
	step, err := h.Client.Steps(t.Context(), ckpt.RunRef{Agent: h.Agent, Run: run}, ckpt.ListFilter{Limit: 1})
	if err != nil || *step.Steps[0].DurationMS != 12 || !strings.Contains(string(step.Steps[0].Args), "checkout.py") || !strings.Contains(string(step.Steps[0].Result), "def total") {
		t.Errorf("the first step is %+v, error %v", step, err)
	}
}

func TestASessionOfCodex(t *testing.T) {
	h := newHandler(t)
	inputs, names := recorded(t, hook.Codex)
	if said := play(t, h, inputs, names); len(said) != 0 {
		t.Errorf("said %v", said)
	}
	want := []string{
		`run running workflow=codex goal="Publish version 1.4 of the package" parent=""`, // Codex reports no end of a session
		"step Bash succeeded",
		"step update_plan succeeded",
		"step Bash failed the command failed",
		`operation "shell cargo publish" failed`,
		"checkpoint routine PostToolUse",
		"checkpoint pre_operation ",
		"checkpoint routine PreCompact",
		"checkpoint routine Stop",
	}
	if diff := cmp.Diff(want, rows(t, h, inputs[0].Session)); diff != "" {
		t.Errorf("rows: %s", diff)
	}
}

func TestASessionOfGemini(t *testing.T) {
	h := newHandler(t)
	inputs, names := recorded(t, hook.Gemini)
	if said := play(t, h, inputs, names); len(said) != 0 {
		t.Errorf("said %v", said)
	}
	want := []string{
		`run completed workflow=gemini goal="Clean and build" parent=""`,
		"step read_file succeeded",
		"step write_todos succeeded",
		"step run_shell_command succeeded",
		"step run_shell_command failed go: not found",
		`operation "shell rm -rf build" succeeded`,
		"checkpoint routine PreCompress",
		"checkpoint routine AfterAgent",
		"checkpoint routine SessionEnd",
	}
	if diff := cmp.Diff(want, rows(t, h, inputs[0].Session)); diff != "" {
		t.Errorf("rows: %s", diff)
	}
}

// in makes an input of Claude Code.
func in(event, session string, members map[string]any) *hook.Input {
	all := map[string]any{"hook_event_name": event, "session_id": session, "cwd": "/home/kim/shop", "transcript_path": ""}
	for name, value := range members {
		all[name] = value
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	read, err := hook.Read(text)
	if err != nil {
		panic(err)
	}
	return read
}

// tells handles an input and returns what the model is told.
func tells(t testing.TB, h *hook.Handler, input *hook.Input) string {
	t.Helper()
	out, err := h.Handle(t.Context(), input)
	if err != nil {
		t.Fatalf("%s: %v", input.Event, err)
	}
	if len(out) == 0 {
		return ""
	}
	return contextOf(t, input.Event, out)
}

// uses plays one call of a tool, and returns what the model is told at its end.
func uses(t testing.TB, h *hook.Handler, session string, n int, tool string, args, result any) string {
	t.Helper()
	members := map[string]any{"tool_name": tool, "tool_input": args, "tool_use_id": fmt.Sprintf("toolu_%s_%d", session, n)}
	tells(t, h, in("PreToolUse", session, members))
	members["tool_response"], members["duration_ms"] = result, 5
	return tells(t, h, in("PostToolUse", session, members))
}

// TestAdviceComesAtTheRightCall plays a session of 40 calls: work, then the
// same call repeatedly from call 21 to call 27, then work again.
func TestAdviceComesAtTheRightCall(t *testing.T) {
	h := newHandler(t)
	tells(t, h, in("SessionStart", "loop", map[string]any{"source": "startup"}))
	tells(t, h, in("UserPromptSubmit", "loop", map[string]any{"prompt": "find it"}))
	told := map[int]string{}
	for n := 1; n <= 40; n++ {
		args, result := map[string]any{"file_path": fmt.Sprintf("/f/%d.go", n)}, map[string]any{"content": fmt.Sprintf("package p%d", n)}
		if n >= 21 && n <= 27 {
			args, result = map[string]any{"pattern": "lost"}, map[string]any{"content": "No files found"}
		}
		if text := uses(t, h, "loop", n, "Grep", args, result); text != "" {
			told[n] = text
		}
	}
	for n, want := range map[int]string{24: "Drift, warn (repeat)", 25: "Drift, critical (repeat)"} {
		if !strings.Contains(told[n], want) {
			t.Errorf("call %d is told %q, want %q", n, told[n], want)
		}
		delete(told, n)
	}
	if len(told) > 0 {
		t.Errorf("also told: %v", told)
	}
	saved, err := h.Client.Checkpoints(t.Context(), ckpt.CheckpointFilter{Agent: h.Agent, Run: "loop", Kind: ckpt.KindRoutine})
	if err != nil || len(saved.Checkpoints) != 2 || saved.Checkpoints[1].Suspect || !saved.Checkpoints[0].Suspect {
		t.Errorf("after 40 calls, 20 between saves: %+v, error %v", saved, err)
	}
	found, err := h.Client.Checkpoints(t.Context(), ckpt.CheckpointFilter{Agent: h.Agent, Run: "loop", Kind: ckpt.KindRecovery})
	if err != nil || len(found.Checkpoints) != 1 {
		t.Errorf("recovery checkpoints: %+v, error %v", found, err)
	}
}

func TestASessionThatBrokeOffIsToldToTheNextOnce(t *testing.T) {
	h := newHandler(t)
	pid, kill := agentProcess(t)
	h.PID = pid
	tells(t, h, in("SessionStart", "first", map[string]any{"source": "startup"}))
	tells(t, h, in("UserPromptSubmit", "first", map[string]any{"prompt": "ship it"}))
	uses(t, h, "first", 1, "TodoWrite", map[string]any{"todos": []any{map[string]any{"content": "deploy", "status": "pending"}}}, map[string]any{})
	tells(t, h, in("PreToolUse", "first", map[string]any{"tool_name": "Bash", "tool_input": map[string]any{"command": "terraform apply -auto-approve"}, "tool_use_id": "apply"}))

	kill()
	h.PID = os.Getpid()
	told := tells(t, h, in("SessionStart", "second", map[string]any{"source": "startup"}))
	for _, part := range []string{
		"An earlier session of this project (run first) stopped before it was done", `Goal: "ship it"`, `\"content\":\"deploy\"`, `Interrupted, result unknown: "Bash"`, "terraform apply",
		`Risky and uncertain: "shell terraform apply -auto-approve`, "ckptsidecar operation resolve shop apply it_did|it_did_not|repeat --run first",
	} {
		if !strings.Contains(told, part) {
			t.Errorf("told %q, without %q", told, part)
		}
	}
	if again := tells(t, h, in("SessionStart", "third", map[string]any{"source": "startup"})); again != "" {
		t.Errorf("told again: %s", again)
	}
	untilInterrupted(t, h, "first")
	end := ckpt.OperationResolution{Key: "apply", Choice: ckpt.ChoiceItDid, Reason: "looked"}
	if _, _, err := h.Client.ResolveOperation(t.Context(), ckpt.RunRef{Agent: "shop", Run: "first"}, end); err != nil {
		t.Fatal(err)
	}
	same := tells(t, h, in("SessionStart", "first", map[string]any{"source": "resume"}))
	if !strings.Contains(same, "This session stopped before it was done, and now continues.") || !strings.Contains(same, "Check whether the interrupted calls took effect") {
		t.Errorf("the session itself is told %q", same)
	}
	run, err := h.Client.Run(t.Context(), ckpt.RunRef{Agent: "shop", Run: "first"})
	if err != nil || run.Status != ckpt.RunRunning || run.PID != os.Getpid() {
		t.Errorf("the run is %+v, error %v", run, err)
	}
}

// untilInterrupted waits until the daemon has noticed that the owner is gone.
func untilInterrupted(t *testing.T, h *hook.Handler, run string) {
	t.Helper()
	expect.Soon(t, "the run is found dead", func() bool {
		r, err := h.Client.Run(t.Context(), ckpt.RunRef{Agent: h.Agent, Run: run})
		expect.OK(t, err)
		return r.Status == ckpt.RunInterrupted
	})
}

func TestASessionThatEndedIsNotToldAndGoesOn(t *testing.T) {
	h := newHandler(t)
	tells(t, h, in("SessionStart", "one", map[string]any{"source": "startup"}))
	uses(t, h, "one", 1, "Read", map[string]any{"file_path": "a"}, "x")
	tells(t, h, in("SessionEnd", "one", map[string]any{"reason": "clear"}))
	if told := tells(t, h, in("SessionStart", "two", map[string]any{"source": "startup"})); told != "" {
		t.Errorf("told of a session that had ended: %s", told)
	}
	if told := tells(t, h, in("SessionStart", "one", map[string]any{"source": "resume"})); told != "" {
		t.Errorf("told at its continuation: %s", told)
	}
	uses(t, h, "one", 2, "Read", map[string]any{"file_path": "b"}, "y")
	tells(t, h, in("SessionEnd", "one", nil))
	uses(t, h, "one", 3, "Read", map[string]any{"file_path": "c"}, "z") // without a start, the run still starts again
	run, err := h.Client.Run(t.Context(), ckpt.RunRef{Agent: "shop", Run: "one"})
	if err != nil || run.Status != ckpt.RunStarting || run.StepsEnded != 1 {
		t.Errorf("the run is %+v, error %v", run, err)
	}
}

// TestASessionThatEndsInARiskyCallIsTold: nobody knows whether the call took effect, so the next session is told, and
// the operation is still there when the session continues.
func TestASessionThatEndsInARiskyCallIsTold(t *testing.T) {
	h := newHandler(t)
	apply := map[string]any{"tool_name": "Bash", "tool_input": map[string]any{"command": "terraform apply"}, "tool_use_id": "apply"}
	tells(t, h, in("SessionStart", "one", map[string]any{"source": "startup"}))
	tells(t, h, in("PreToolUse", "one", apply))
	tells(t, h, in("SessionEnd", "one", map[string]any{"reason": "prompt_input_exit"}))
	run, err := h.Client.Run(t.Context(), ckpt.RunRef{Agent: "shop", Run: "one"})
	if err != nil || run.Status != ckpt.RunInterrupted {
		t.Errorf("the run is %+v, error %v", run, err)
	}
	if told := tells(t, h, in("SessionStart", "two", map[string]any{"source": "startup"})); !strings.Contains(told, "terraform apply") {
		t.Errorf("the next session is told %q", told)
	}
	tells(t, h, in("SessionStart", "one", map[string]any{"source": "resume"}))
	list, err := h.Client.Operations(t.Context(), ckpt.RunRef{Agent: "shop", Run: "one"}, ckpt.ListFilter{})
	if err != nil || len(list.Operations) != 1 || list.Operations[0].Status != ckpt.OperationUncertain {
		t.Errorf("the operations are %+v, error %v", list, err)
	}
}

func TestAToolThatWasDeniedIsSettledWithItsTurn(t *testing.T) {
	h := newHandler(t)
	denied := map[string]any{"tool_name": "Bash", "tool_input": map[string]any{"command": "git push --force"}, "tool_use_id": "denied"}
	tells(t, h, in("PreToolUse", "s", denied))
	tells(t, h, in("Stop", "s", map[string]any{"last_assistant_message": "You said no."}))
	want := []string{
		`run running workflow= goal="" parent=""`, "step Bash failed no result was reported by the end of the turn: the call was probably denied",
		`operation "shell git push --force" failed`, "checkpoint pre_operation ", "checkpoint routine Stop",
	}
	if diff := cmp.Diff(want, rows(t, h, "s")); diff != "" {
		t.Errorf("rows: %s", diff)
	}
}

// TestTheModelKnowsHowACallEnded: what the transcript has as the result of a risky call counts, also an error, and nobody is
// asked. Only a call without a result, or one that goes on in the background, is uncertain.
func TestTheModelKnowsHowACallEnded(t *testing.T) {
	for name, c := range map[string]struct {
		result     string // in the transcript
		background bool
		want       ckpt.OperationStatus
	}{
		"denied":     {`{"type":"tool_result","tool_use_id":"call","is_error":true,"content":"The user doesn't want to proceed"}`, false, ckpt.OperationFailed},
		"done":       {`{"type":"tool_result","tool_use_id":"call","content":[{"type":"text","text":"pushed"}]}`, false, ckpt.OperationSucceeded},
		"no result":  {`{"type":"tool_result","tool_use_id":"other","content":"x"}`, false, ckpt.OperationUncertain},
		"background": {"", true, ckpt.OperationUncertain},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHandler(t)
			file := filepath.Join(t.TempDir(), "transcript.jsonl")
			if err := os.WriteFile(file, []byte(`{"type":"user","message":{"content":[`+c.result+`]}}`+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			call := map[string]any{"tool_name": "Bash", "tool_input": map[string]any{"command": "git push", "run_in_background": c.background},
				"tool_use_id": "call", "transcript_path": file}
			tells(t, h, in("PreToolUse", "s", call))
			if c.background {
				call["tool_response"] = "it runs"
				tells(t, h, in("PostToolUse", "s", call))
			} else {
				tells(t, h, in("Stop", "s", map[string]any{"transcript_path": file}))
			}
			wantOperation(t, h, "s", c.want)
			page, err := h.Client.Prompts(t.Context(), ckpt.PromptFilter{Open: true})
			if asked := c.want == ckpt.OperationUncertain; err != nil || (len(page.Prompts) == 1) != asked {
				t.Errorf("the open prompts are %+v, error %v", page, err)
			}
		})
	}
}

// TestACallThatEndedWhileTheDaemonWasAwayMayHaveRun: its end could not be reported, as that of a denied call is not.
func TestACallThatEndedWhileTheDaemonWasAwayMayHaveRun(t *testing.T) {
	d := newDaemonIn(t)
	h := handlerOf(t, d.socket)
	tells(t, h, in("SessionStart", "s", map[string]any{"source": "startup"}))
	ran := map[string]any{"tool_name": "Bash", "tool_input": map[string]any{"command": "git push"}, "tool_use_id": "ran"}
	tells(t, h, in("PreToolUse", "s", ran))
	d.stop()
	if _, err := h.Handle(t.Context(), in("PostToolUse", "s", ran)); err == nil {
		t.Error("its end was reported")
	}
	d.start(t)
	denied := map[string]any{"tool_name": "Bash", "tool_input": map[string]any{"command": "git push --force"}, "tool_use_id": "denied"}
	tells(t, h, in("PreToolUse", "s", denied))
	tells(t, h, in("Stop", "s", nil))
	want := []string{
		`run running workflow=claude-code goal="" parent=""`, "step Bash started",
		"step Bash failed no result was reported by the end of the turn: the call was probably denied",
		`operation "shell git push --force" failed`, `operation "shell git push" open`,
		"checkpoint pre_operation ", "checkpoint pre_operation ", "checkpoint routine Stop",
	}
	if diff := cmp.Diff(want, rows(t, h, "s")); diff != "" {
		t.Errorf("rows: %s", diff)
	}
	tells(t, h, in("SessionEnd", "s", nil))
	if told := tells(t, h, in("SessionStart", "next", map[string]any{"source": "startup"})); !strings.Contains(told, `Risky and uncertain: "shell git push", `) {
		t.Errorf("the next session is told %q", told)
	}
}

func TestLargeResultsAreCutAndStillTold(t *testing.T) {
	h := newHandler(t)
	large := strings.Repeat("0123456789abcdef", 40_000)
	told := ""
	for n := range 4 {
		told = uses(t, h, "big", n, "Read", map[string]any{"file_path": "big"}, large)
	}
	if !strings.Contains(told, "Drift, warn (repeat)") {
		t.Errorf("the fourth same large result is told %q", told)
	}
	steps, err := h.Client.Steps(t.Context(), ckpt.RunRef{Agent: "shop", Run: "big"}, ckpt.ListFilter{})
	if err != nil || len(steps.Steps[0].Result) > 64<<10 || !strings.Contains(string(steps.Steps[0].Result), `"cut":true`) {
		t.Errorf("the result is %d bytes, error %v", len(steps.Steps[0].Result), err)
	}
}

func TestUnderExecTheRunIsAnothers(t *testing.T) {
	h := newHandler(t)
	plan, _, err := h.Client.Resume(t.Context(), ckpt.ResumeRequest{Agent: "shop", Run: "nightly", PID: os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	h.Run, h.Epoch = "nightly", &plan.Epoch
	tells(t, h, in("SessionStart", "any", map[string]any{"source": "startup"}))
	uses(t, h, "any", 1, "Read", map[string]any{"file_path": "a"}, "x")
	tells(t, h, in("SessionEnd", "any", nil))
	want := []string{`run running workflow= goal="" parent=""`, "step Read succeeded", "checkpoint routine SessionEnd"}
	if diff := cmp.Diff(want, rows(t, h, "nightly")); diff != "" {
		t.Errorf("rows: %s", diff)
	}
}

// TestAHookOutlivesItsReader: it ends with 0 even if nobody reads what it says.
func TestAHookOutlivesItsReader(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "hook", "--nonsense")
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
}

// TestASubagentWithoutAnIDEndsNoSession: old versions of Claude Code report SubagentStop without agent_id.
func TestASubagentWithoutAnIDEndsNoSession(t *testing.T) {
	h := newHandler(t)
	for _, text := range []string{
		`{"session_id":"s","cwd":"/x","hook_event_name":"SessionStart","source":"startup"}`,
		`{"session_id":"s","cwd":"/x","hook_event_name":"PreToolUse","tool_name":"Task","tool_use_id":"t1","tool_input":{"prompt":"x"}}`,
		`{"session_id":"s","cwd":"/x","hook_event_name":"SubagentStop","stop_hook_active":false}`,
		`{"session_id":"s","cwd":"/x","hook_event_name":"PostToolUse","tool_name":"Task","tool_use_id":"t1","tool_input":{"prompt":"x"},"tool_response":{}}`,
	} {
		in, err := hook.Read([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Handle(t.Context(), in); err != nil {
			t.Errorf("%s: %v", in.Event, err)
		}
	}
	want := []string{`run starting workflow=claude-code goal="" parent=""`, "step Task succeeded"}
	if diff := cmp.Diff(want, rows(t, h, "s")); diff != "" {
		t.Error(diff)
	}
}
