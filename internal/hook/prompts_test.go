package hook_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/hook"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// lastPrompts returns the last prompt of each checkpoint of a run, oldest first.
func lastPrompts(t *testing.T, h *hook.Handler, run string) (list []string) {
	t.Helper()
	page, err := h.Client.Checkpoints(t.Context(), ckpt.CheckpointFilter{Agent: h.Agent, Run: run})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range slices.Backward(page.Checkpoints) {
		whole, err := h.Client.Checkpoint(t.Context(), c.ID, true)
		if err != nil {
			t.Fatal(err)
		}
		var state hook.Snapshot
		if err := jsontext.Decode(whole.State, &state); err != nil {
			t.Fatal(err)
		}
		list = append(list, fmt.Sprintf("%s: %s", state.Event, state.LastPrompt))
	}
	return list
}

// TestCheckpointsHoldTheLastPrompt: only the event of a prompt has its text.
func TestCheckpointsHoldTheLastPrompt(t *testing.T) {
	for product, last := range map[hook.Product]string{
		hook.ClaudeCode: "Do it. SCRIPT:basic", hook.Codex: "Clean up. SCRIPT:crec", hook.Gemini: "Clean up. SCRIPT:grec",
	} {
		t.Run(string(product), func(t *testing.T) {
			h := newHandler(t)
			inputs := recorded(t, product)
			play(t, h, inputs)
			for _, got := range lastPrompts(t, h, inputs[0].Session) {
				if !strings.HasSuffix(got, ": "+last) {
					t.Errorf("a checkpoint has %q, not %q", got, last)
				}
			}
		})
	}
}

func TestCheckpointsHoldTheLastPromptOfMany(t *testing.T) {
	h := newHandler(t)
	tells(t, h, in("SessionStart", "s", map[string]any{"source": "startup"}))
	for n := range 3 {
		tells(t, h, in("UserPromptSubmit", "s", map[string]any{"prompt": fmt.Sprintf("prompt %d", n)}))
		if n == 1 { // events of somebody else, more than one page of them
			other := make([]ckpt.NewEvent, ckpt.MaxEvents)
			for i := range other {
				other[i] = ckpt.NewEvent{Type: "note", Payload: ckpt.JSON(`{"prompt":"no prompt"}`)}
			}
			if _, _, err := h.Client.Append(t.Context(), ckpt.RunRef{Agent: h.Agent, Run: "s"}, other, ""); err != nil {
				t.Fatal(err)
			}
		}
		if n != 1 {
			tells(t, h, in("Stop", "s", nil))
		}
	}
	tells(t, h, in("PreToolUse", "s", push("push")))
	tells(t, h, in("SessionEnd", "s", nil))
	if got, want := fmt.Sprint(lastPrompts(t, h, "s")), "[Stop: prompt 0 Stop: prompt 2 PreToolUse: prompt 2]"; got != want {
		t.Errorf("the checkpoints have %s, not %s", got, want)
	}
}
