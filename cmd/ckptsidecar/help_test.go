package main

import (
	"strings"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// TestFirstPageOfTheHelp: the page fits a terminal, and says where the rest is. A line without a command prints it too.
func TestFirstPageOfTheHelp(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	page := call(t, "", "--help")
	lines := strings.Split(strings.TrimSuffix(page.stdout, "\n"), "\n")
	if page.code != cli.ExitDone || len(lines) > 45 || len(lines) < 30 {
		t.Errorf("exit %d, %d lines", page.code, len(lines))
	}
	for _, line := range lines {
		if len(line) > 80 {
			t.Errorf("wider than 80: %q", line)
		}
	}
	for _, other := range []string{"help more", "help flags", "help COMMAND"} {
		if !strings.Contains(page.stdout, "`ckptsidecar "+other+"`") {
			t.Errorf("the page does not name %s", other)
		}
	}
	if got := call(t, ""); got.code != cli.ExitUsage || got.stderr != page.stdout {
		t.Errorf("no command: exit %d, %q", got.code, got.stderr)
	}
	if got := call(t, "", "help"); got.code != cli.ExitDone || got.stdout != page.stdout {
		t.Errorf("help: exit %d, %q", got.code, got.stdout)
	}
}

// TestPagesOfTheHelp: a command's help begins with its own arguments and flags. All commands and the global flags have a page each.
func TestPagesOfTheHelp(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	more, flags := call(t, "", "help", "more"), call(t, "", "help", "flags")
	for _, path := range commandPaths(t) {
		if !strings.Contains(more.stdout, "  "+path) {
			t.Errorf("help more does not name %s", path)
		}
		if got := call(t, "", append([]string{"help"}, strings.Fields(path)...)...); strings.Contains(got.stdout, "--jq") ||
			!strings.HasSuffix(got.stdout, "\nGlobal flags: `ckptsidecar help flags`\n") {
			t.Errorf("help %s: exit %d, %s", path, got.code, got.stdout)
		}
	}
	if !strings.Contains(more.stdout, "Exit codes: 0 done") || strings.Contains(more.stdout, "--jq") {
		t.Errorf("help more:\n%s", more.stdout)
	}
	for _, flag := range []string{"--socket", "--owner", "--json", "--quiet", "--wide", "--color", "--format", "--jq", "--help"} {
		if !strings.Contains(flags.stdout, flag) {
			t.Errorf("help flags has no %s", flag)
		}
	}
	if got := call(t, "", "help", "ovreview"); got.code != cli.ExitUsage || !strings.Contains(got.stderr, `did you mean "overview"?`) {
		t.Errorf("help of no command: exit %d, %s", got.code, got.stderr)
	}
}
