package doctor

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/hook"
)

// TestHooksOfCodingAgents: complete and trusted, with an event missing, and not trusted.
func TestHooksOfCodingAgents(t *testing.T) {
	folder := t.TempDir()
	p := &patient{app: &cli.App{Flags: &cli.Flags{}, Env: func(string) string { return "" }}}
	whole, err := hook.Install(hook.Codex, nil, "ckptsidecar hook --for codex", 0)
	expect.OK(t, err)
	file := hook.SettingsFile(hook.Codex, folder, nil)
	said := func(settings []byte) string {
		f := hooksOf(t.Context(), p, hook.Codex, file, settings)
		if f == nil {
			return ""
		}
		return string(f.Level) + " " + f.What
	}
	if got := said(whole); !strings.Contains(got, "warn codex: the hooks in "+file+" are not trusted") {
		t.Errorf("without trust it says %q", got)
	}
	expect.OK(t, os.MkdirAll(filepath.Dir(file), 0o700))
	expect.OK(t, os.WriteFile(filepath.Join(filepath.Dir(file), "config.toml"), []byte("[hooks.state.\"x\"]\ntrusted_hash = \"sha256:1\"\n"), 0o600))
	if got := said(whole); !strings.Contains(got, "ok codex: 9 hooks installed") || !strings.Contains(got, "no daemon answers") {
		t.Errorf("with trust it says %q", got)
	}
	if got := said(bytes.Replace(whole, []byte("SessionEnd"), []byte("Other"), 1)); !strings.Contains(got, "warn codex: no hook for SessionEnd") {
		t.Errorf("without one event it says %q", got)
	}
	if got := said([]byte(`{"hooks":{"Stop":[{"hooks":[{"type":"command","command":"beep"}]}]}}`)); got != "" {
		t.Errorf("of somebody else's hooks it says %q", got)
	}
}
