package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// called is the result of a command that was run inside the test.
type called struct {
	code           int
	stdout, stderr string
}

func call(t *testing.T, stdin string, args ...string) called {
	t.Helper()
	var out, errs bytes.Buffer
	env := map[string]string{"HOME": t.TempDir(), "CKPTSIDECAR_SOCKET": "/nonexistent/sock"}
	code := run(context.Background(), args, process{
		stdin: strings.NewReader(stdin), stdout: &out, stderr: &errs, env: func(name string) string { return env[name] },
	})
	return called{code, out.String(), errs.String()}
}

func TestUsageIsRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	const id = "0197f6a0-0000-7000-8000-000000000001"
	tests := []struct {
		args []string
		want string // part of the message
	}{
		{nil, "Usage: ckptsidecar <command>"},
		{[]string{"frobnicate"}, "unexpected argument frobnicate"},
		{[]string{"save"}, "<agent> is missing"},
		{[]string{"save", "bad name"}, `the agent name "bad name" has ' ' at position 4`},
		{[]string{"save", "a", "--kind", "weekly"}, `kind "weekly" is unknown`},
		{[]string{"save", "a", "--run", "../x"}, "the run name"},
		{[]string{"save", "a", "--label", "novalue"}, "novalue"},
		{[]string{"save", "a", "--metadata", "[1]"}, "the metadata must be a JSON object"},
		{[]string{"save", "a", "--id", "7"}, `"7" is not an id`},
		{[]string{"save", "a", "--epoch", "x"}, "--epoch"},
		{[]string{"save", "a", "--colour"}, "unknown flag --colour"},
		{[]string{"restore", "a", "--checkpoint", "7 b"}, `"7 b" does not name a checkpoint`},
		{[]string{"restore", "a", "--kind", "x"}, `kind "x" is unknown`},
		{[]string{"list", "a", "--limit", "0"}, "--limit is 0"},
		{[]string{"list", ""}, "the agent has no name"},
		{[]string{"show", "a b"}, `"a b" does not name a checkpoint`},
		{[]string{"diff", id, "a@b"}, `"a@b" does not name a checkpoint`},
		{[]string{"diff", id, id, "-u", "-s"}, "can't be used together"},
		{[]string{"tag", id}, "is missing"},
		{[]string{"rewind", "coder"}, "<to> takes a whole number; got coder"},
		{[]string{"tag", id, "novalue"}, `"novalue" does not change a label`},
		{[]string{"policy", "set", "a"}, "nothing to set"},
		{[]string{"policy", "set", "a", "colour=1"}, `a policy has no key "colour"; its keys are`},
		{[]string{"policy", "set", "a", "routine_keep=-1"}, "routine_keep is -1"},
		{[]string{"policy", "set", "a", "routine_keep=many"}, "routine_keep takes a whole number of checkpoints, 0 for all; got many"},
		{[]string{"policy", "set", "a", "secrets=shout"}, `secrets is "shout"`},
		{[]string{"erase", "a"}, "add --yes"},
		{[]string{"prune", "a b"}, "the agent name"},
		{[]string{"import", "--agent", "a b", "x"}, "the agent name"},
		{[]string{"completion", "tcsh"}, "tcsh"},
		{[]string{"demo", "--steps", "1"}, "--steps must be between 10 and 10000; got 1"},
		{[]string{"bench", "save", "--duration", "x"}, "--duration"},
		{[]string{"bench", "save", "--duration", "1ms"}, "--duration must be between 10ms and 1h; got 1ms"},
		{[]string{"bench", "save", "--rounds", "0"}, "--rounds must be between 1 and 1000; got 0"},
		{[]string{"bench", "save", "--clients", "512", "--sizes", "64MiB"}, "1 GiB of memory"},
		{[]string{"bench", "save", "--memory-clients", "0"}, "--memory-clients is 0"},
		{[]string{"bench", "save", "--memory-large", "1GiB"}, "--memory-large has \"1GiB\""},
		{[]string{"bench", "save", "--sizes", "big"}, "--sizes has"},
		{[]string{"bench", "save", "--clients", "0"}, "--clients must be between 1 and 512; got 0"},
		{[]string{"list", "a", "--tree", "--label", "k=v"}, "--tree shows all"},
		{[]string{"resume", "a b"}, "the agent name"},
		{[]string{"resume", "a", "--heartbeat-timeout", "-1s"}, "heartbeat_timeout is -1s"},
		{[]string{"runs", "--status", "dead"}, `status "dead" is unknown`},
		{[]string{"runs", "-n", "0"}, "--limit is 0"},
		{[]string{"run", "end", "a", "running"}, "running"},
		{[]string{"run", "end", "a", "completed", "--result", "{"}, "the result is not JSON"},
		{[]string{"run", "start", "a", "--fork-from", "a//3"}, `"a//3" does not name a checkpoint`},
		{[]string{"steps", "a", "--status", "open"}, "open"},
		{[]string{"step", "record", "a", "", "--name", "n"}, "step key"},
		{[]string{"operation", "begin", "a", "k", "--label", "bad key=1"}, "label"},
		{[]string{"operation", "resolve", "a", "k", "maybe"}, "maybe"},
		{[]string{"events", "append", "a", "type", "{"}, "the payload is not JSON"},
		{[]string{"events", "append", "a"}, "standard input has no events"},
		{[]string{"events", "a", "--after", "-1"}, "must be 0 or more"},
		{[]string{"prompts", "answer", "7", "resume"}, `"7" is neither the id of a prompt`},
		{[]string{"prompts", "answer", id}, "the answer is empty"},
		{[]string{"exec", "--", "true"}, "name the agent"},
		{[]string{"exec", "--agent", "a b", "--", "true"}, "the agent name"},
		{[]string{"exec", "--agent", "a"}, "command"},
		{[]string{"exec", "--agent", "a", "--owner", "uid:0", "--", "true"}, "exec does not take --owner"},
		{[]string{"exec", "--agent", "a", "--heartbeat", "30s", "--", "true"}, "it must be longer than --heartbeat"},
		{[]string{"exec", "--agent", "a", "--backoff", "1m", "--", "true"}, "--max-backoff"},
		{[]string{"serve", "--set", "colour=1"}, `there is no setting "colour"`},
		{[]string{"serve", "--set", "limits.max_body=big"}, `"big" is not a size`},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			got := call(t, "", tt.args...)
			if got.code != cli.ExitUsage || !strings.Contains(got.stderr, tt.want) || got.stdout != "" {
				t.Errorf("exit %d, stderr %q, stdout %q; want exit 2 and %q", got.code, got.stderr, got.stdout, tt.want)
			}
		})
	}
}

func TestWithoutADaemonEveryCommandSaysWhatToDo(t *testing.T) {
	const id = "0197f6a0-0000-7000-8000-000000000001"
	for _, args := range [][]string{
		{"save", "a"}, {"restore", "a"}, {"list", "a"}, {"show", id}, {"diff", id, id}, {"tag", id, "k=v"},
		{"pin", id}, {"unpin", id}, {"delete", id}, {"export", "a"}, {"import"}, {"prune"}, {"erase", "a", "--yes"},
		{"resume", "a"}, {"runs"}, {"run", "start", "a"}, {"run", "beat", "a"}, {"run", "end", "a", "completed"}, {"run", "show", "a"},
		{"steps", "a"}, {"step", "begin", "a", "k"}, {"step", "finish", "a", "k"}, {"step", "record", "a", "k"},
		{"operations", "a"}, {"operation", "begin", "a", "k"}, {"operation", "succeed", "a", "k"}, {"operation", "fail", "a", "k"},
		{"operation", "resolve", "a", "k", "it_did_not"}, {"events", "a"}, {"events", "a", "-f"}, {"events", "append", "a", "t"},
		{"prompts"}, {"prompts", "show", id}, {"prompts", "answer", id, "resume"}, {"exec", "--agent", "a", "--", "go"},
		{"agents"}, {"policy", "get", "a"}, {"policy", "set", "a", "routine_keep=5"}, {"status"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			got := call(t, "{}", withSocket(args, "/nonexistent/sock")...)
			if got.code != cli.ExitTryLater || !strings.Contains(got.stderr, "ckptsidecar serve") {
				t.Errorf("exit %d, stderr %q; want 75 and how to start a daemon", got.code, got.stderr)
			}
			if n := strings.Count(got.stderr, "\n"); n != 1 {
				t.Errorf("%d lines, want one: %q", n, got.stderr)
			}
		})
	}
}

// withSocket inserts the daemon's socket before a "--", because what follows
// belongs to another program.
func withSocket(args []string, socket string) []string {
	at := slices.Index(args, "--")
	if at < 0 {
		at = len(args)
	}
	return slices.Insert(slices.Clone(args), at, "--socket", socket)
}

func TestErrorsAreJSONWhereJSONIsAskedFor(t *testing.T) {
	got := call(t, "", "status", "--json", "--socket", "/nonexistent/sock")
	var shape struct {
		Detail    string `json:"detail"`
		Retryable bool   `json:"retryable"`
		Exit      int    `json:"exit_code"`
	}
	if err := json.Unmarshal([]byte(got.stderr), &shape); err != nil {
		t.Fatalf("%v: %q", err, got.stderr)
	}
	if shape.Exit != cli.ExitTryLater || !shape.Retryable || shape.Detail == "" {
		t.Errorf("%+v", shape)
	}
}

func TestHelpOfEveryCommand(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	for _, p := range commandPaths(t) {
		got := call(t, "", append(strings.Fields(p), "--help")...)
		if got.code != cli.ExitDone || !strings.Contains(got.stdout, "Usage: ckptsidecar") {
			t.Errorf("%s --help: exit %d, %q", p, got.code, got.stderr)
		}
	}
}

func TestConfigurationMistakesEndWith78(t *testing.T) {
	got := call(t, "", "serve", "--config", "/nonexistent/config.toml")
	if got.code != 78 || !strings.Contains(got.stderr, "/nonexistent/config.toml") {
		t.Errorf("exit %d, %q", got.code, got.stderr)
	}
}

func TestPrintConfigIsAFile(t *testing.T) {
	got := call(t, "", "serve", "--print-config", "--db", "/x/ckpt.db", "--set", "limits.max_body=1MiB")
	for _, want := range []string{`database = "/x/ckpt.db"`, "[limits]", `max_body = "1MiB"`, "# Environment: CKPTSIDECAR_DB"} {
		if got.code != 0 || !strings.Contains(got.stdout, want) {
			t.Errorf("exit %d, no %q in:\n%s", got.code, want, got.stdout)
		}
	}
}

func TestEraseAsksForTheName(t *testing.T) {
	for typed, want := range map[string]int{"a\n": cli.ExitTryLater, "yes\n": cli.ExitFailed, "": cli.ExitFailed} {
		var out, errs bytes.Buffer
		code := run(context.Background(), []string{"erase", "a", "--socket", "/nonexistent/sock"}, process{
			stdin: strings.NewReader(typed), stdout: &out, stderr: &errs, interactive: true, env: func(string) string { return "" },
		})
		if code != want || !strings.Contains(errs.String(), "Type its name") {
			t.Errorf("typed %q: exit %d, want %d: %s", typed, code, want, &errs)
		}
	}
}

// TestWaitingForInputCanBeStopped: one Ctrl-C is enough.
func TestWaitingForInputCanBeStopped(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	never, _ := io.Pipe()
	for _, args := range [][]string{{"save", "a"}, {"erase", "a"}, {"policy", "set", "a", "--file", "-"}} {
		var out, errs bytes.Buffer
		code := run(ctx, args, process{stdin: never, stdout: &out, stderr: &errs, interactive: true, env: func(string) string { return "" }})
		if code != cli.ExitFailed || !strings.Contains(errs.String(), "interrupted before it finished") {
			t.Errorf("%q: exit %d, %s", args, code, &errs)
		}
	}
}
