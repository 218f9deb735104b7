package hook_test

import (
	"fmt"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/hook"
)

// TestEscOfGemini: Gemini CLI reports a call that the user stopped like one that ended.
func TestEscOfGemini(t *testing.T) {
	h := newHandler(t)
	inputs := recorded(t, "gemini-esc")
	play(t, h, inputs)
	wantOperation(t, h, inputs[0].Session, ckpt.OperationUncertain)
	run := runOf(t, h, inputs[0].Session)
	expect.Equal(t, "the status of the run", run.Status, ckpt.RunInterrupted)
}

// TestEndsOfGemini plays what Gemini CLI 0.61.0 tells its model about a command.
func TestEndsOfGemini(t *testing.T) {
	h := newHandler(t)
	h.Product = hook.Gemini
	n := 0
	for text, want := range map[string]struct {
		step      ckpt.StepStatus
		operation ckpt.OperationStatus
	}{
		"Output: x\nProcess Group PGID: 7":                {ckpt.StepSucceeded, ckpt.OperationSucceeded},
		"Output: x\nExit Code: 3\nProcess Group PGID: 7":  {ckpt.StepFailed, ckpt.OperationFailed},
		"Output: (empty)\nSignal: 9\nBackground PIDs: 12": {ckpt.StepFailed, ckpt.OperationFailed},
		"Command was cancelled by user before it could complete. Below is the output before it was cancelled:\nOutput: x":   {ckpt.StepFailed, ckpt.OperationUncertain},
		"Command was automatically cancelled because it exceeded the timeout of 5.0 minutes without output. There was no ":  {ckpt.StepFailed, ckpt.OperationUncertain},
		"Command was cancelled by user before it could start.":                                                              {ckpt.StepFailed, ckpt.OperationFailed},
		"Command injection detected: command substitution syntax ($(), backticks, <() or >()) found in command arguments. ": {ckpt.StepFailed, ckpt.OperationFailed},
		"Command moved to background (PID: 4711). Output hidden. Press Ctrl+B to view.":                                     {ckpt.StepStarted, ckpt.OperationOpen},
	} {
		for _, wrapped := range []string{text, "<untrusted_context>\n" + text + "\n</untrusted_context>"} {
			n++
			session := fmt.Sprint("s", n)
			call := map[string]any{"tool_name": "run_shell_command", "tool_input": map[string]any{"command": "rm x"}}
			tells(t, h, in("SessionStart", session, map[string]any{"source": "startup"}))
			tells(t, h, in("BeforeTool", session, call))
			call["tool_response"] = map[string]any{"llmContent": wrapped}
			tells(t, h, in("AfterTool", session, call))
			wantOperation(t, h, session, want.operation)
			list, err := h.Client.Steps(t.Context(), ckpt.RunRef{Agent: h.Agent, Run: session}, ckpt.ListFilter{})
			if err != nil || len(list.Steps) != 1 || list.Steps[0].Status != want.step {
				t.Errorf("after %q the steps are %+v, error %v", wrapped, list, err)
			}
		}
	}
}
