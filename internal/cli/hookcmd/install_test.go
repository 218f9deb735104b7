package hookcmd

import (
	"bytes"
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
	if err != nil || !strings.HasSuffix(got, " --socket "+commandWord(want)) {
		t.Errorf("the command is %s, error %v", got, err)
	}
}
