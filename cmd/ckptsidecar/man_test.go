package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/cli/manual"
	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
)

// TestTheManualNamesEverything: the manual is made from the same model as the
// help.
func TestTheManualNamesEverything(t *testing.T) {
	got := call(t, "", "man")
	if got.code != 0 {
		t.Fatal(got.stderr)
	}
	page := got.stdout
	for _, path := range commandPaths(t) {
		last := path[strings.LastIndexByte(path, ' ')+1:]
		if !strings.Contains(page, manual.Roff(last)) {
			t.Errorf("the manual does not name %s", path)
		}
	}
	config := daemon.Default(false, manual.Anywhere)
	for _, s := range config.Settings() {
		if !strings.Contains(page, manual.Roff(s.Key)) || !strings.Contains(page, manual.Roff(s.Env)) {
			t.Errorf("the manual does not name the setting %s", s.Key)
		}
	}
	if strings.Contains(page, manual.Roff("demo-agent")) {
		t.Error("the manual names a hidden command")
	}
	for _, other := range []string{"/root", t.TempDir()} {
		if strings.Contains(page, manual.Roff(other)) {
			t.Errorf("the manual has %s of this machine in it", other)
		}
	}
}

func TestTroffHasNothingAgainstTheManual(t *testing.T) {
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("groff is not installed")
	}
	cmd := exec.CommandContext(t.Context(), groff, "-man", "-Tutf8", "-ww", "-rCHECKSTYLE=10")
	cmd.Stdin = strings.NewReader(call(t, "", "man").stdout)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	page, err := cmd.Output()
	if err != nil || complaints.Len() > 0 {
		t.Errorf("%v: %s", err, complaints.String())
	}
	if !strings.Contains(strings.Join(strings.Fields(string(page)), " "), "where it does not run in a terminal.") {
		t.Errorf("the page is not whole:\n%s", page)
	}
}
