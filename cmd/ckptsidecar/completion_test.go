package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/manual"
)

// commandPaths returns all commands that help shows, in the form that users
// type.
func commandPaths(t *testing.T) []string {
	t.Helper()
	parser, err := kong.New(&grammar{}, kong.Exit(func(int) {}), helpVars)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, p := range manual.Places(parser.Model.Node) {
		if p.Path != "" {
			paths = append(paths, p.Path)
		}
	}
	return paths
}

func TestEveryCommandOfTheIssueIsThere(t *testing.T) {
	paths := commandPaths(t)
	for _, want := range strings.Fields("serve save restore list show diff tag pin unpin delete export import prune erase agents policy status verify backup doctor demo bench version completion " +
		"resume runs run steps step events operations operation prompts exec service config") {
		if !slices.Contains(paths, want) {
			t.Errorf("there is no %s", want)
		}
	}
	for _, hidden := range []string{"demo-agent", "exec-child"} {
		if slices.Contains(paths, hidden) {
			t.Errorf("%s shows", hidden)
		}
	}
}

// completeInBash asks bash itself what it offers after a line.
func completeInBash(t *testing.T, line string) []string {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed")
	}
	script := filepath.Join(t.TempDir(), "completion")
	got := call(t, "", "completion", "bash")
	if err := os.WriteFile(script, []byte(got.stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	ask := `source "$1" || exit 1
COMP_LINE=$2; read -ra COMP_WORDS <<<"$2"; [[ $2 == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 )); _ckptsidecar
printf '%s\n' "${COMPREPLY[@]}"`
	out, err := exec.Command(bash, "-u", "-c", ask, "ask", script, line).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.Fields(string(out))
}

func TestBashCompletes(t *testing.T) {
	tests := []struct {
		line       string
		want, lack []string
	}{
		{"ckptsidecar ", []string{"serve", "save", "policy"}, []string{"get", "demo-agent"}},
		{"ckptsidecar ve", []string{"verify", "version"}, []string{"serve"}},
		{"ckptsidecar policy ", []string{"get", "set"}, []string{"save"}},
		{"ckptsidecar policy set a --f", []string{"--file"}, []string{"--kind"}},
		{"ckptsidecar save a --k", []string{"--kind"}, nil},
		{"ckptsidecar --json save a --", []string{"--kind", "--label", "--socket", "--json"}, []string{"--unified"}},
		{"ckptsidecar completion ", []string{"bash", "zsh", "fish", "powershell"}, nil},
		{"ckptsidecar serve --config /etc/host", []string{"/etc/hosts"}, []string{"--db"}},
	}
	for _, tt := range tests {
		got := completeInBash(t, tt.line)
		for _, want := range tt.want {
			if !slices.Contains(got, want) {
				t.Errorf("%q: no %q in %q", tt.line, want, got)
			}
		}
		for _, lack := range tt.lack {
			if slices.Contains(got, lack) {
				t.Errorf("%q: %q is offered", tt.line, lack)
			}
		}
	}
}

// TestOtherShellsParse checks the scripts of other shells. If a shell is
// installed, it parses its script. Every script names every command.
func TestOtherShellsParse(t *testing.T) {
	for shell, check := range map[string][]string{"zsh": {"-n"}, "fish": {"--no-execute"}, "powershell": nil, "bash": {"-n"}} {
		got := call(t, "", "completion", shell)
		for _, p := range commandPaths(t) {
			last := p[strings.LastIndexByte(p, ' ')+1:]
			if !strings.Contains(got.stdout, last) {
				t.Errorf("%s: no %s", shell, p)
			}
		}
		tool, err := exec.LookPath(shell)
		if err != nil || check == nil {
			continue
		}
		script := filepath.Join(t.TempDir(), "script")
		if err := os.WriteFile(script, []byte(got.stdout), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(tool, append(check, script)...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", shell, err, out)
		}
	}
}
