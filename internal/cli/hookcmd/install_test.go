package hookcmd

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

func newApp(socket string) *cli.App {
	none := func(string) string { return "" }
	out := new(bytes.Buffer)
	style := term.NewStyle(out, none)
	return &cli.App{Flags: &cli.Flags{Socket: socket}, Stdin: strings.NewReader(""), Stdout: out, Stderr: out, Env: none, Out: style, Err: style}
}

func TestTheInstalledSocketIsFoundFromEveryFolder(t *testing.T) {
	c := installCmd{place: place{forProduct: forProduct{For: "codex"}}, options: options{SaveEvery: 20}}
	want, err := filepath.Abs(filepath.Join("run", "s"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.command(newApp(filepath.Join("run", "s")))
	if err != nil || !strings.HasSuffix(got, " --socket "+pathWord(want)) {
		t.Errorf("the command is %s, error %v", got, err)
	}
}

// answers is a person who says yes, after something was done.
type answers struct{ before func() }

func (a answers) Read(p []byte) (int, error) {
	a.before()
	return copy(p, "y\n"), nil
}

// TestSettingsThatChangeMeanwhileAreNotOverwritten: while a person reads the difference, the product may write its
// settings.
func TestSettingsThatChangeMeanwhileAreNotOverwritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "settings.json")
	const theirs = `{"theme": "light"}`
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	edit := func([]byte) ([]byte, error) { return []byte(`{"ours": true}`), nil }
	app := newApp("")
	app.Interactive = true
	for _, before := range []string{"", `{"theme": "dark"}`} {
		_ = os.Remove(file)
		if before != "" {
			write(before)
		}
		app.Stdin = answers{func() { write(theirs) }}
		done, err := new(place).change(app, file, edit)
		if done || err == nil || !strings.Contains(err.Error(), "changed meanwhile") {
			t.Errorf("done %v, error %v", done, err)
		}
		if now, err := os.ReadFile(file); err != nil || string(now) != theirs {
			t.Errorf("the settings are %s, error %v", now, err)
		}
	}
	app.Stdin = answers{func() {}}
	if done, err := new(place).change(app, file, edit); !done || err != nil {
		t.Errorf("done %v, error %v", done, err)
	}
}
