package hook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/hook"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// recorded returns what a product gave to its hooks, in order. Its transcript is the recorded one, as far as that is kept.
func recorded(t testing.TB, product hook.Product) (inputs []*hook.Input) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", string(product)+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		in, err := hook.Read(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if in.Transcript, err = filepath.Abs(filepath.Join("testdata", string(product)+"-transcript.jsonl")); err != nil {
			t.Fatal(err)
		}
		inputs = append(inputs, in)
	}
	return inputs
}

// play gives inputs to the hook. It returns what the model is told.
func play(t testing.TB, h *hook.Handler, inputs []*hook.Input) (said []string) {
	t.Helper()
	for i, in := range inputs {
		out, err := h.Handle(t.Context(), in)
		if err != nil {
			t.Fatalf("input %d, %s: %v", i, in.Event, err)
		}
		if len(out) > 0 {
			said = append(said, contextOf(t, in.Event, out))
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

// TestRecordedSessions plays sessions of the real products. What each run is left with follows.
func TestRecordedSessions(t *testing.T) {
	for product, sessions := range map[hook.Product]map[string][]string{
		hook.ClaudeCode: {
			"63dc8268-4a00-4fce-a344-1a75afc2278f": {
				`run completed workflow=claude-code goal="Do it. SCRIPT:basic" parent=""`,
				"step Bash succeeded", "step Write succeeded", "step Bash succeeded", "step Bash failed Exit code 1", "step Bash succeeded",
				`operation "shell rm -rf build src.txt" succeeded`, "checkpoint routine Stop",
			},
			// A subagent goes on in the background, and the end of the call is told as a prompt, which is none.
			"c900cfdf-7c62-4c8b-9d69-4456d29347e3": {
				`run completed workflow=claude-code goal="Do it. SCRIPT:sub" parent=""`, "step Agent succeeded", "checkpoint routine Stop", "checkpoint routine Stop",
			},
			"c900cfdf-7c62-4c8b-9d69-4456d29347e3.aae2cb0a869a00e4b": {
				`run completed workflow=claude-code goal="" parent="c900cfdf-7c62-4c8b-9d69-4456d29347e3"`, "step Bash succeeded", "step Bash succeeded",
				`operation "shell rm -f sub.txt" succeeded`, "checkpoint routine ",
			},
			// A push in the background that failed after its tool had answered.
			"b0a9f38a-b337-462c-ad0f-286ecf7717f6": {
				`run completed workflow=claude-code goal="Do it. SCRIPT:bgrisk" parent=""`, `step Bash failed Background command "run" failed with exit code 1`,
				`operation "shell git push origin main" failed`, "checkpoint pre_operation ", "checkpoint routine Stop", "checkpoint routine Stop",
			},
			// Esc in rm, which had removed its file. Claude Code tells the model that the user had rejected the call.
			"37da0e19-f7d6-4b0b-b89e-1c694cb54f99": {
				`run interrupted workflow=claude-code goal="Go. SCRIPT:slow" parent=""`, "step Bash failed the user stopped it: it may have taken effect", "step Bash succeeded",
				`operation "shell rm -f old.txt" uncertain`, "checkpoint pre_operation ", "checkpoint routine Stop",
			},
			// A rule of the settings denied the call.
			"f3eb9d3d-ef37-4240-9b26-d42e24389dd2": {
				`run completed workflow=claude-code goal="Do. SCRIPT:denied" parent=""`, "step Bash failed Permission to use Bash with command rm -rf build has been denied.",
				`operation "shell rm -rf build" failed`, "checkpoint pre_operation ", "checkpoint routine Stop",
			},
		},
		hook.Codex: {
			"01a22430-7352-7950-8961-b98a70b3522b": {
				`run completed workflow=codex goal="Clean up. SCRIPT:crec" parent=""`,
				"step Bash succeeded", "step Bash failed Exit code 3 out",
				"step Bash failed exec_command failed: CreateProcess { message: \"Rejected(\\\"`/bin/bash -lc 'rm -rf build'` rejected: rm -f style commands are not permitted. Use a safer approach\\\")\" }",
				"step Bash failed Exit code 1 rm: cannot remove 'gone.txt': No such file or directory", "step Bash succeeded",
				`operation "shell rm a.txt" succeeded`, `operation "shell rm -r build gone.txt" failed`, `operation "shell rm -rf build" failed`,
				"checkpoint pre_operation ", "checkpoint pre_operation ", "checkpoint routine Stop",
			},
			// Esc in rm. Codex ends the command itself when the session ends, and notes -1 as its exit code.
			"01a22463-78a5-7210-8e98-0a70f58a118c": {
				`run interrupted workflow=codex goal="Go. SCRIPT:cslow2" parent=""`, "step Bash failed the user stopped it: it may have taken effect", "step Bash succeeded",
				`operation "shell rm old.txt" uncertain`, "checkpoint pre_operation ", "checkpoint routine Stop",
			},
			"01a222e0-c7e4-7b70-b2b3-e3695dfc6fc6": { // JavaScript calls the tools
				`run completed workflow=codex goal="Again. SCRIPT:code" parent=""`, "step Bash succeeded", "step apply_patch succeeded", "step Bash succeeded",
				"step Bash failed Exit code 2 ls: cannot access 'nothere': No such file or directory",
				`operation "shell rm -r code.txt" succeeded`, "checkpoint routine Stop",
			},
		},
		hook.Gemini: {
			// A push that goes on in the background. Nobody tells how it ended.
			"01c07149-e398-40c3-a615-b7cabce3ef1e": {
				`run interrupted workflow=gemini goal="Clean up. SCRIPT:grec" parent=""`,
				"step run_shell_command succeeded", "step run_shell_command failed Exit code 3 out", "step write_file succeeded", "step run_shell_command succeeded",
				"step run_shell_command failed Exit code 1 rm: cannot remove 'gone.txt': No such file or directory", "step run_shell_command interrupted",
				"step mcp_things_delete_thing succeeded",
				`operation "mcp__things__delete_thing {\"id\":1}" succeeded`, `operation "shell git push" uncertain`, `operation "shell rm gone.txt" failed`,
				`operation "shell rm -r build" succeeded`,
			},
		},
	} {
		t.Run(string(product), func(t *testing.T) {
			t.Parallel()
			h := newHandler(t)
			h.Product = product
			play(t, h, recorded(t, product))
			for run, want := range sessions {
				got := rows(t, h, run)
				if product == hook.Gemini { // it compacts before each call of the model, and a checkpoint follows where something is new
					got = slices.DeleteFunc(got, func(row string) bool { return strings.HasPrefix(row, "checkpoint ") })
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("run %s: %s", run, diff)
				}
			}
		})
	}
}

// TestASnapshotOfARealSession reads the last checkpoint of one.
func TestASnapshotOfARealSession(t *testing.T) {
	h := newHandler(t)
	inputs := recorded(t, hook.ClaudeCode)
	play(t, h, inputs)
	run := inputs[0].Session
	last, err := h.Client.Latest(t.Context(), ckpt.CheckpointFilter{Agent: h.Agent, Run: run}, true)
	if err != nil {
		t.Fatal(err)
	}
	var state hook.Snapshot
	if err := jsontext.Decode(last.State, &state); err != nil {
		t.Fatal(err)
	}
	if state.Folder != "/home/dev/proj" || state.ToolCalls != 5 || state.LastMessage != "All done, the build folder is gone." || state.LastPrompt != "Do it. SCRIPT:basic" {
		t.Errorf("the state is %s", last.State)
	}
	step, err := h.Client.Steps(t.Context(), ckpt.RunRef{Agent: h.Agent, Run: run}, ckpt.ListFilter{Limit: 1})
	if err != nil || *step.Steps[0].DurationMS != 485 || !strings.Contains(string(step.Steps[0].Args), "a.txt") || !strings.Contains(string(step.Steps[0].Result), "bashEditDiff") {
		t.Errorf("the first step is %+v, error %v", step, err)
	}
}

// TestACompactedSessionIsReminded: Claude Code begins a session again after it has compacted it.
func TestACompactedSessionIsReminded(t *testing.T) {
	h := newHandler(t)
	tells(t, h, in("SessionStart", "s", map[string]any{"source": "startup"}))
	tells(t, h, in("UserPromptSubmit", "s", map[string]any{"prompt": "ship it"}))
	uses(t, h, "s", 1, "TodoWrite", map[string]any{"todos": []any{map[string]any{"content": "Fix total"}}}, map[string]any{})
	tells(t, h, in("PreCompact", "s", map[string]any{"trigger": "auto"}))
	told := tells(t, h, in("SessionStart", "s", map[string]any{"source": "compact"}))
	for _, part := range []string{"Before the compaction", `Goal: "ship it"`, `\"content\":\"Fix total\"`, "after 1 tool calls"} {
		if !strings.Contains(told, part) {
			t.Errorf("after the compaction it is told %q, without %q", told, part)
		}
	}
}

// TestGeminisPromptIsTheUsers: Gemini CLI gives to hooks the prompt with what hooks have said before it.
func TestGeminisPromptIsTheUsers(t *testing.T) {
	for _, in := range recorded(t, hook.Gemini) {
		if in.Event == "BeforeAgent" && in.Prompt != "Clean up. SCRIPT:grec" {
			t.Errorf("the prompt is %q", in.Prompt)
		}
	}
	twice, err := hook.Read([]byte(`{"hook_event_name":"BeforeAgent","session_id":"s","prompt":"<hook_context>a</hook_context>\n\n<hook_context>b</hook_context>\n\nmine"}`))
	if err != nil || twice.Prompt != "mine" {
		t.Errorf("the prompt is %q, error %v", twice.Prompt, err)
	}
}

// TestNothingNewIsNotSaved: Gemini CLI reports a compaction before each call of the model.
func TestNothingNewIsNotSaved(t *testing.T) {
	h := newHandler(t)
	tells(t, h, in("SessionStart", "s", map[string]any{"source": "startup"}))
	tells(t, h, in("BeforeAgent", "s", map[string]any{"prompt": "look"}))
	for range 5 {
		tells(t, h, in("PreCompress", "s", nil))
	}
	page, err := h.Client.Checkpoints(t.Context(), ckpt.CheckpointFilter{Agent: h.Agent, Run: "s"})
	if err != nil || len(page.Checkpoints) != 1 {
		t.Errorf("the checkpoints are %+v, error %v", page, err)
	}
}

// TestTheEndOfASessionAloneMakesNoRun: Claude Code reports one also after `claude mcp list`.
func TestTheEndOfASessionAloneMakesNoRun(t *testing.T) {
	h := newHandler(t)
	tells(t, h, in("SessionEnd", "s", map[string]any{"reason": "other"}))
	if run, err := h.Client.Run(t.Context(), ckpt.RunRef{Agent: h.Agent, Run: "s"}); ckpt.CodeOf(err) != ckpt.CodeNotFound {
		t.Errorf("the run is %+v, error %v", run, err)
	}
}

// slowFiles are files that take longer than a hook has.
type slowFiles struct{ hook.Files }

func (slowFiles) Keep(string, ckpt.RunRef, string) (hook.Keeping, error) { return slowKeeping{}, nil }

type slowKeeping struct{}

func (slowKeeping) Tree(ctx context.Context, most time.Duration) (tree, why string) {
	<-ctx.Done() // a machine that does not even wake the process in time
	return "", ""
}

// TestASlowMachineEndsItsRuns: nothing that may take long comes before the end of the run.
func TestASlowMachineEndsItsRuns(t *testing.T) {
	h := newHandler(t)
	tells(t, h, in("SessionStart", "s", map[string]any{"source": "startup"}))
	tells(t, h, in("UserPromptSubmit", "s", map[string]any{"prompt": "look"}))
	h.Files = slowFiles{}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, _ = h.Handle(ctx, in("SessionEnd", "s", map[string]any{"reason": "other"}))
	if run := runOf(t, h, "s"); run.Status != ckpt.RunCompleted {
		t.Errorf("the run is %s", run.Status)
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

func TestACallWithoutAnEndIsUncertainAtTheEndOfItsTurn(t *testing.T) {
	h := newHandler(t)
	denied := map[string]any{"tool_name": "Bash", "tool_input": map[string]any{"command": "git push --force"}, "tool_use_id": "denied"}
	tells(t, h, in("PreToolUse", "s", denied))
	tells(t, h, in("Stop", "s", map[string]any{"last_assistant_message": "You said no."}))
	want := []string{
		`run running workflow= goal="" parent=""`, "step Bash failed its turn ended, and nothing says how it ended: it may have taken effect",
		`operation "shell git push --force" uncertain`, "checkpoint pre_operation ", "checkpoint routine Stop",
	}
	if diff := cmp.Diff(want, rows(t, h, "s")); diff != "" {
		t.Errorf("rows: %s", diff)
	}
}

// TestTheModelKnowsHowACallEnded: what the transcript has as the result of a risky call counts, also an error, and nobody is
// asked. Only a call without a result is uncertain. One that goes on in the background is still open.
func TestTheModelKnowsHowACallEnded(t *testing.T) {
	for name, c := range map[string]struct {
		result     string // in the transcript
		background bool
		want       ckpt.OperationStatus
	}{
		"denied":     {`{"type":"tool_result","tool_use_id":"call","is_error":true,"content":"The user doesn't want to proceed"}`, false, ckpt.OperationFailed},
		"done":       {`{"type":"tool_result","tool_use_id":"call","content":[{"type":"text","text":"pushed"}]}`, false, ckpt.OperationSucceeded},
		"no result":  {`{"type":"tool_result","tool_use_id":"other","content":"x"}`, false, ckpt.OperationUncertain},
		"background": {"", true, ckpt.OperationOpen},
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
		"step Bash failed its turn ended, and nothing says how it ended: it may have taken effect",
		`operation "shell git push --force" uncertain`, `operation "shell git push" open`,
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
