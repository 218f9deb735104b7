package hook_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/hook"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// trees are files that are another tree whenever version grows. A tree comes after late, attached to its checkpoint.
type trees struct {
	hook.Files
	t       *testing.T
	c       *client.Client
	version int
	late    time.Duration
}

func (f *trees) Warm(string, ckpt.RunRef) error { return nil }

func (f *trees) Interrupted(string) bool { return false }

func (f *trees) Keep(folder string, ref ckpt.RunRef, checkpoint string) (hook.Keeping, error) {
	stored, err := f.c.PutTree(f.t.Context(), ckpt.TreeRequest{Agent: ref.Agent, Root: "/home/kim/shop", GitHead: fmt.Sprintf("%040d", f.version), CapturedAt: ckpt.At(time.Now()), Complete: true})
	if err != nil {
		return nil, err
	}
	if f.late == 0 {
		return kept(stored.ID), nil
	}
	go func() {
		time.Sleep(f.late)
		_, _, _ = f.c.AttachTrees(f.t.Context(), ckpt.AttachRequest{Checkpoint: checkpoint, Trees: []string{stored.ID}, Run: ref.Run, IdempotencyKey: "attach-" + checkpoint})
	}()
	return kept(""), nil
}

type kept string

func (k kept) Tree(context.Context, time.Duration) (tree, why string) { return string(k), "" }

// withFiles returns a handler that keeps files.
func withFiles(t *testing.T) (*hook.Handler, *trees) {
	h := newHandler(t)
	f := &trees{t: t, c: h.Client}
	h.Files, h.FilesWait, h.Prompts = f, time.Second, 200
	return h, f
}

// promptsKept returns the prompts of a run whose checkpoints have files, oldest first.
func promptsKept(t *testing.T, h *hook.Handler, run string) (list []string) {
	t.Helper()
	page, err := h.Client.Checkpoints(t.Context(), ckpt.CheckpointFilter{Agent: h.Agent, Run: run, Limit: ckpt.MaxLimit})
	expect.OK(t, err)
	for _, c := range slices.Backward(page.Checkpoints) {
		if c.Labels["prompt"] != "" && len(c.Trees) > 0 {
			list = append(list, c.Labels["prompt"])
		}
	}
	return list
}

// TestFilesOfPromptsStay: the policy keeps three routine checkpoints of a run, and each prompt makes as many.
func TestFilesOfPromptsStay(t *testing.T) {
	h, f := withFiles(t)
	tells(t, h, in("SessionStart", "s", map[string]any{"source": "startup"}))
	for n := range 6 {
		tells(t, h, in("UserPromptSubmit", "s", map[string]any{"prompt": fmt.Sprint("prompt ", n)}))
		for call := range 3 {
			f.version++
			uses(t, h, "s", 10*n+call, "Bash", map[string]any{"command": "rm x"}, map[string]any{})
		}
		tells(t, h, in("Stop", "s", map[string]any{"last_assistant_message": fmt.Sprint("done ", n)}))
	}
	if got := fmt.Sprint(promptsKept(t, h, "s")); got != "[1 2 3 4 5 6]" {
		t.Errorf("the prompts with files are %s", got)
	}
	h.Prompts = 4
	f.version++
	tells(t, h, in("UserPromptSubmit", "s", map[string]any{"prompt": "one more"}))
	if got := fmt.Sprint(promptsKept(t, h, "s")); got != "[4 5 6 7]" {
		t.Errorf("with at most four, the prompts with files are %s", got)
	}
	tells(t, h, in("UserPromptSubmit", "s", map[string]any{"prompt": "nothing has changed"}))
	if got := fmt.Sprint(promptsKept(t, h, "s")); got != "[4 5 6 7]" {
		t.Errorf("after a prompt without a change, the prompts with files are %s", got)
	}
}

// TestMorePromptsThanAPageStay: the limit of prompts may be more than a page of checkpoints.
func TestMorePromptsThanAPageStay(t *testing.T) {
	h, _ := withFiles(t)
	h.Prompts = ckpt.MaxLimit + 1
	for n := range h.Prompts + 1 {
		_, err := h.Client.Save(t.Context(), &ckpt.SaveRequest{Agent: h.Agent, Run: "old", Kind: ckpt.KindPreOperation, State: []byte("{}"),
			ContentType: ckpt.ContentTypeJSON, Labels: ckpt.Labels{"event": "UserPromptSubmit", "prompt": fmt.Sprint(n)}})
		expect.OK(t, err)
	}
	tells(t, h, in("SessionStart", "s", map[string]any{"source": "startup"}))
	tells(t, h, in("UserPromptSubmit", "s", map[string]any{"prompt": "one more"}))
	old := 0
	for f := (ckpt.CheckpointFilter{Agent: h.Agent, Run: "old", Limit: ckpt.MaxLimit}); ; {
		page, err := h.Client.Checkpoints(t.Context(), f)
		expect.OK(t, err)
		old += len(page.Checkpoints)
		if f.Before = string(page.Next); f.Before == "" {
			break
		}
	}
	expect.Equal(t, "earlier prompts with the newest one", old+1, h.Prompts)
}

// TestAChangingCallWaitsForTheFilesOfItsPrompt: a call that changes nothing does not.
func TestAChangingCallWaitsForTheFilesOfItsPrompt(t *testing.T) {
	h, f := withFiles(t)
	f.late = 700 * time.Millisecond
	tells(t, h, in("SessionStart", "s", map[string]any{"source": "startup"}))
	tells(t, h, in("UserPromptSubmit", "s", map[string]any{"prompt": "change it"}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := h.Handle(ctx, in("PreToolUse", "s", map[string]any{"tool_name": "Read", "tool_input": map[string]any{}, "tool_use_id": "read"}))
	expect.OK(t, err)
	if got := promptsKept(t, h, "s"); len(got) > 0 {
		t.Log("this machine is so slow that the files came before a call that only reads")
	}
	_, err = h.Handle(ctx, in("PreToolUse", "s", map[string]any{"tool_name": "Bash", "tool_input": map[string]any{"command": "make"}, "tool_use_id": "make"}))
	expect.OK(t, err)
	if got := fmt.Sprint(promptsKept(t, h, "s")); got != "[1]" {
		t.Errorf("when the call begins, the prompts with files are %s", got)
	}
}
