package hook_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/hook"
)

// outcomes returns the outcomes of a run's steps, with their turns.
func outcomes(t *testing.T, h *hook.Handler, run string) (list []string) {
	t.Helper()
	page, err := h.Client.Steps(t.Context(), ckpt.RunRef{Agent: h.Agent, Run: run}, ckpt.ListFilter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range page.Steps {
		list = append(list, fmt.Sprintf("%s %s", s.Outcome, s.Turn))
	}
	return list
}

// TestExitCodesThatMeanNo: outputs of commands with exit code 1, in the forms
// of Claude Code and Codex.
func TestExitCodesThatMeanNo(t *testing.T) {
	for _, test := range []struct {
		command, output string
		code            int
		want            bool
	}{
		{"grep -rn lost .", "", 1, true},
		{"cd src && grep -q lost a.go", "", 1, true},
		{"grep lost gone.txt", "grep: gone.txt: No such file or directory", 2, false},
		{"diff a b", "3c3\n< one\n---\n> two", 1, true},
		{"diff a gone", "diff: gone: No such file or directory", 2, false},
		{"git diff --exit-code", "diff --git a/a b/a", 1, true},
		{"which terraform", "/usr/bin/which: no terraform in (/usr/bin:/bin)", 1, true},
		{"test -f gone.txt", "", 1, true},
		{"[ -d gone ]", "", 1, true},
		{"find / -name ckpt.db", "find: '/root': Permission denied", 1, true},
		{"find gone -name x", "find: 'gone': No such file or directory", 1, false},
		{"rg lost", "", 1, true},
		{"pytest -q", "1 failed, 4 passed", 1, false},
		{"grep x a | python3 sum.py", "Traceback (most recent call last):", 1, false},
		{"make -s", "", 2, false},
	} {
		for _, product := range []hook.Product{hook.ClaudeCode, hook.Codex} {
			t.Run(test.command+" of "+string(product), func(t *testing.T) {
				more := map[string]any{"tool_name": "Bash", "tool_input": map[string]any{"command": test.command}, "tool_use_id": "call_1"}
				event := "PostToolUseFailure"
				if product == hook.ClaudeCode {
					more["error"] = strings.TrimSpace(fmt.Sprintf("Exit code %d\n%s", test.code, test.output))
				} else {
					event, more["turn_id"], more["tool_response"] = "PostToolUse", "turn", test.output
					more["transcript_path"] = rolloutOf(t, "call_1", test.code, test.output)
				}
				if got := in(event, "s", more).Outcome() == ckpt.StepNegative; got != test.want {
					t.Errorf("negative is %v", got)
				}
			})
		}
	}
}

// rolloutOf writes a rollout of Codex with one command.
func rolloutOf(t *testing.T, id string, code int, output string) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{"type": "event_msg", "payload": map[string]any{"type": "item_completed", "item": map[string]any{
		"type": "CommandExecution", "id": id, "status": "completed", "exit_code": code, "aggregated_output": output,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "rollout.jsonl")
	if err := os.WriteFile(file, append(text, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestTurnsAndNegativesOfClaudeCode plays a session of Claude Code that
// searches without success, eight times in one answer of the model, together
// with the transcript that Claude Code writes.
func TestTurnsAndNegativesOfClaudeCode(t *testing.T) {
	h := newHandler(t)
	transcript := filepath.Join(t.TempDir(), "session.jsonl")
	var lines []string
	for n := range 8 {
		line, err := json.Marshal(map[string]any{"type": "assistant", "uuid": fmt.Sprint(n), "message": map[string]any{
			"id": "msg_01Same", "role": "assistant", "content": []any{map[string]any{"type": "tool_use", "id": fmt.Sprint("toolu_", n), "name": "Bash", "input": map[string]any{}}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(line))
	}
	lines = append(lines, `{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_0","content":"x"}]}}`, "{broken", "")
	if err := os.WriteFile(transcript, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	for n := range 8 {
		more := map[string]any{"tool_name": "Bash", "tool_input": map[string]any{"command": "grep lost a.go"}, "tool_use_id": fmt.Sprint("toolu_", n), "transcript_path": transcript}
		tells(t, h, in("PreToolUse", "s", more))
		more["error"] = "Exit code 1"
		if said := tells(t, h, in("PostToolUseFailure", "s", more)); said != "" {
			t.Fatalf("call %d is told %q", n, said)
		}
	}
	for n, got := range outcomes(t, h, "s") {
		if got != "negative msg_01Same" {
			t.Errorf("step %d has %q", n, got)
		}
	}
}
