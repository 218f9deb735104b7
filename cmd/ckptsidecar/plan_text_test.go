package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/view"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares a text with testdata/golden/NAME.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(read(t, path), got); diff != "" {
		t.Errorf("%s (-update writes it anew):\n%s", path, diff)
	}
}

// inUTC makes the test show times in UTC, as in the golden files.
func inUTC(t *testing.T) {
	t.Helper()
	zone := time.Local
	time.Local = time.UTC
	t.Cleanup(func() { time.Local = zone })
}

func minute(n int) ckpt.Time {
	return ckpt.At(time.Date(2026, 7, 1, 3, n, 0, 0, time.UTC))
}

func checkpointID(n int) string { return fmt.Sprintf("0197f6a0-0000-7000-8000-%012d", n) }

// TestPlanText: each verdict says what happened, what is safe and what to type.
func TestPlanText(t *testing.T) {
	inUTC(t)
	newest := &ckpt.Checkpoint{
		ID: checkpointID(12), Agent: "coder", Run: "r1", Seq: 12, Kind: ckpt.KindRoutine, Size: 2048, CreatedAt: minute(40), ContentType: ckpt.ContentTypeJSON,
	}
	prompt := &ckpt.Prompt{ID: checkpointID(99), Agent: "coder", Run: "r1", MemoryDiff: ckpt.JSON(`[{"op":"remove","path":"/plan"},{"op":"replace","path":"/n","value":0}]`)}
	pay := ckpt.Operation{Key: "pay the bill", Name: "pay", Status: ckpt.OperationUncertain, StartedAt: minute(42)}
	var done []ckpt.CompletedStep
	for i := range 10 {
		done = append(done, ckpt.CompletedStep{Key: fmt.Sprintf("call-%d", i)})
	}
	var text strings.Builder
	for _, p := range []*ckpt.Plan{
		{Verdict: ckpt.VerdictFresh, Run: "main", Epoch: 1, Attempt: 1, Claimed: true, Reasons: []string{"There is no such run yet."}},
		{Verdict: ckpt.VerdictResume, Run: "r1", Epoch: 3, Attempt: 3, Claimed: true, Checkpoint: newest, AccumulatedMS: 3_723_000,
			CompletedSteps: done, ContinuationPrompt: "go on with the tests\nand the docs", ExternalSession: "thread-7"},
		{Verdict: ckpt.VerdictResume, Run: "r1", Epoch: 2, Checkpoint: newest},
		{Verdict: ckpt.VerdictRepair, Run: "r1", Epoch: 3, Attempt: 3, Claimed: true, Checkpoint: newest, AccumulatedMS: 59_400,
			Skipped:          []ckpt.Skipped{{ID: checkpointID(13), Seq: 13, Reason: "damaged: its hash is another"}},
			InterruptedSteps: []ckpt.InterruptedStep{{Key: "it's call 4", Name: "search", StartedAt: minute(41)}},
			Program:          &ckpt.ProgramRest{Executed: 120, Remaining: "await b()"}},
		{Verdict: ckpt.VerdictAsk, Run: "r1", Epoch: 2, Checkpoint: newest, UncertainOperations: []ckpt.Operation{pay}, Prompt: prompt},
		{Verdict: ckpt.VerdictAsk, Run: "main", Epoch: 2, Checkpoint: newest},
		{Verdict: ckpt.VerdictUnsafe, Run: "r1", Epoch: 2, Reasons: []string{"Its owner, process 4711, is alive."}},
		{Verdict: ckpt.VerdictUnsafe, Run: "main", Epoch: 2, Skipped: []ckpt.Skipped{{ID: checkpointID(1), Seq: 1, Reason: "damaged: a piece is missing"}}},
	} {
		p.Agent = "coder"
		for _, p.Command = range []*ckpt.Command{nil, {Argv: []string{"python3", "my agent.py"}, Folder: "/srv"}} {
			if p.Command != nil && view.ExitOfVerdict(p.Verdict) < view.ExitAsk {
				continue
			}
			fmt.Fprintf(&text, "=== exit code %d\n", view.ExitOfVerdict(p.Verdict))
			view.PlanText(&text, &term.Style{}, p)
			fmt.Fprintln(&text)
		}
	}
	if strings.Contains(text.String(), "ckptsidecar resume") {
		t.Error("a person is told to claim the run for a shell")
	}
	golden(t, "plan.txt", text.String())
}

// TestHistoryIsDrawnAsATree: branches by restore and by fork, removed parents,
// pins, suspects and the newest of each run.
func TestHistoryIsDrawnAsATree(t *testing.T) {
	inUTC(t)
	var list []ckpt.Checkpoint
	add := func(n int, run string, seq int64, parent int, change func(*ckpt.Checkpoint)) {
		c := ckpt.Checkpoint{ID: checkpointID(n), Agent: "a", Run: run, Seq: seq, Kind: ckpt.KindRoutine, Size: 100 * int64(n), CreatedAt: minute(n)}
		if parent > 0 {
			c.Parent = ckpt.Ref(checkpointID(parent))
		}
		if change != nil {
			change(&c)
		}
		list = append(list, c)
	}
	add(2, "main", 2, 1, func(c *ckpt.Checkpoint) { c.Pinned = true })
	add(3, "main", 3, 2, nil)
	add(4, "main", 4, 3, func(c *ckpt.Checkpoint) { c.Suspect = true })
	add(5, "main", 5, 4, func(c *ckpt.Checkpoint) { c.Suspect = true })
	add(6, "main", 6, 3, func(c *ckpt.Checkpoint) { c.Kind = ckpt.KindRecovery; c.Labels = ckpt.Labels{"why": "drift"} }) // restored the third
	add(7, "try", 1, 3, nil)                                                                                              // a fork
	add(8, "try", 2, 7, func(c *ckpt.Checkpoint) { c.Kind = ckpt.KindPreOperation })
	add(9, "deep", 1, 8, nil) // a fork of the fork
	add(10, "try", 3, 8, nil)
	add(11, "main", 7, 6, nil)
	add(12, "alone", 1, 0, nil)
	var b bytes.Buffer
	newHistory(list).write(&b, &term.Style{})
	golden(t, "tree.txt", b.String())
}

func TestShellWord(t *testing.T) {
	for word, want := range map[string]string{"a-b/c:1": "a-b/c:1", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$x": "'$x'"} {
		if got := ckpt.ShellWord(word); got != want {
			t.Errorf("%q: %s, want %s", word, got, want)
		}
	}
}

func TestWorkedText(t *testing.T) {
	for ms, want := range map[int64]string{0: "0s", 250: "250ms", 1512: "1.5s", 61_400: "1m1s", 3_723_000: "1h2m", 90_000_000: "25h0m"} {
		if got := view.WorkedText(ms); got != want {
			t.Errorf("%d: %s, want %s", ms, got, want)
		}
	}
}

// TestExecTellsNobodyElsesRun: the environment variables that exec sets apply
// only to its own agent and its own run.
func TestExecTellsNobodyElsesRun(t *testing.T) {
	env := map[string]string{"CKPTSIDECAR_AGENT": "a", "CKPTSIDECAR_RUN": "r", "CKPTSIDECAR_EPOCH": "7"}
	a := &cli.App{Env: func(name string) string { return env[name] }}
	other := int64(3)
	for _, tt := range []struct {
		agent, run string
		epoch      *int64
		want       string
	}{
		{"a", "", nil, "r 7"}, {"a", "r", nil, "r 7"}, {"a", "q", nil, "q -"}, {"b", "", nil, " -"}, {"b", "r", nil, "r -"}, {"a", "", &other, "r 3"},
	} {
		ref := a.Ref(tt.agent, tt.run, tt.epoch)
		got := ref.Run + " -"
		if ref.Epoch != nil {
			got = fmt.Sprint(ref.Run, " ", *ref.Epoch)
		}
		if got != tt.want {
			t.Errorf("%s %s: %q, want %q", tt.agent, tt.run, got, tt.want)
		}
	}
}
