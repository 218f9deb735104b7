package hook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/hook"
)

// FuzzHandle gives the handler inputs that no coding agent would send, over a
// real daemon. For every input, an answer is JSON, and no error is caused by us
// or by the daemon.
func FuzzHandle(f *testing.F) {
	for _, product := range hook.Products {
		text, err := os.ReadFile(filepath.Join("testdata", string(product)+".jsonl"))
		if err != nil {
			f.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			f.Add(line)
		}
	}
	h := newHandler(f)
	h.SaveEvery = 2
	f.Fuzz(func(t *testing.T, text []byte) {
		in, err := hook.Read(text)
		if err != nil {
			return
		}
		in.Folder = t.TempDir()                                      // otherwise it would look for git in any folder
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // the command has a shorter limit
		defer cancel()
		out, err := h.Handle(ctx, in)
		if len(out) > 0 && !json.Valid(out) {
			t.Errorf("the answer %q is no JSON", out)
		}
		switch code := ckpt.CodeOf(err); {
		case err == nil:
		case ctx.Err() != nil:
			if err := h.Client.Ready(t.Context()); err != nil {
				t.Errorf("nothing came in time, and the daemon is not well: %v", err)
			}
		case code == "", code == ckpt.CodeInternal, code == ckpt.CodeCorrupt:
			t.Errorf("%q: %v", code, err)
		}
	})
}

// FuzzInstall: if hooks are written into any settings, they are still valid
// settings, a second installation changes nothing, and nothing of ours is left
// after the hooks were removed.
func FuzzInstall(f *testing.F) {
	for _, text := range []string{``, `{}`, `{"hooks":{"PreToolUse":[{"matcher":"Bash","hooks":[{"type":"command","command":"lint"}]}]},"model":"x"}`, `{"hooks":null}`, `{"hooks":{"Stop":{}}}`, `[]`, "{\n\t\"a\": 1\n}\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, settings []byte) {
		for _, p := range []hook.Product{hook.ClaudeCode, hook.Codex, hook.Gemini} {
			once, err := hook.Install(p, settings, "/usr/bin/ckptsidecar hook", 0)
			if err != nil {
				return
			}
			twice, err := hook.Install(p, once, "/usr/bin/ckptsidecar hook", 0)
			if err != nil || string(once) != string(twice) || !json.Valid(once) {
				t.Fatalf("once %s, twice %s, error %v", once, twice, err)
			}
			out, err := hook.Uninstall(once)
			if err != nil || !json.Valid(out) {
				t.Fatalf("taken out of %s: %s, error %v", once, out, err)
			}
			if again, err := hook.Uninstall(out); err != nil || string(again) != string(out) {
				t.Fatalf("%s and then %s, error %v", out, again, err)
			}
		}
	})
}
