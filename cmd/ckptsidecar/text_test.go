package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/driftcmd"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

func TestExplainPatch(t *testing.T) {
	from := `{"a":1.50,"b":[1,2,3],"c":{"d~/e":"x"},"gone":null}`
	patch := `[{"op":"replace","path":"/a","value":2},{"op":"remove","path":"/b/0"},{"op":"replace","path":"/b/0","value":9},
		{"op":"add","path":"/b/-","value":4},{"op":"add","path":"/b/0","value":{"z":1}},{"op":"replace","path":"/c/d~0~1e","value":[]},{"op":"remove","path":"/gone"},{"op":"add","path":"/n","value":null}]`
	changes, err := explainPatch([]byte(from), []byte(patch))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range changes {
		got = append(got, fmt.Sprintf("%s %s %s", c.path, cli.OrNone(string(c.old)), cli.OrNone(string(c.new))))
	}
	want := []string{
		"/a 1.50 2", "/b/0 1 none", "/b/0 2 9", "/b/- none 4", `/b/0 none {"z":1}`, `/c/d~0~1e "x" []`, "/gone null none", "/n none null",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := explainPatch([]byte(`{"a":[]}`), []byte(`[{"op":"remove","path":"/a/3"}]`)); err == nil {
		t.Error("a patch that does not fit was explained")
	}
}

func TestRelabel(t *testing.T) {
	got, err := relabel(ckpt.Labels{"a": "1", "b": "2"}, []string{"a-", "c=x=y", "b="})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(ckpt.Labels{"b": "", "c": "x=y"}, got); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"a", "-", "bad key=1"} {
		if _, err := relabel(nil, []string{bad}); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestTimelineIsDrawn(t *testing.T) {
	entry := func(what, key, name, status string, suspect bool) ckpt.TimelineEntry {
		return ckpt.TimelineEntry{What: what, Key: key, Name: name, Status: status, Suspect: suspect}
	}
	r := &ckpt.DriftReport{}
	r.Timeline = []ckpt.TimelineEntry{
		entry("checkpoint", "c1", "routine", "saved", false), entry("step", "k1", "a", "succeeded", false), entry("step", "k2", "a", "failed", false),
		entry("checkpoint", "c2", "pre_operation", "saved", true), entry("step", "k3", "a", "started", false), entry("step", "k4", "a", "interrupted", false),
		entry("checkpoint", "c3", "recovery", "saved", true), entry("checkpoint", "c4", "recovery", "saved", false),
	}
	r.Findings = []ckpt.Finding{
		{Severity: ckpt.SeverityWarn, Evidence: ckpt.JSON(`{"steps":["k1","k2"]}`)},
		{Severity: ckpt.SeverityCritical, Evidence: ckpt.JSON(`{"steps":["k2"],"checkpoints":["c3"]}`)},
		{Severity: ckpt.SeverityCritical, Evidence: ckpt.JSON(`{"steps":7}`)},
	}
	var out strings.Builder
	driftcmd.TimelineText(&out, &term.Style{}, r)
	lines := strings.Split(out.String(), "\n")
	if lines[0] != "what it did last  C.xS~?rR" || lines[1] != "what was found     '^   ^" {
		t.Errorf("%q", lines)
	}
	for range driftcmd.LineLength {
		r.Timeline = append(r.Timeline, entry("step", "z", "a", "succeeded", false))
	}
	out.Reset()
	if driftcmd.TimelineText(&out, &term.Style{}, r); out.String()[:len("what it did last  ")+driftcmd.LineLength+1] != "what it did last  "+strings.Repeat(".", driftcmd.LineLength)+"\n" {
		t.Error(out.String())
	}
}

func TestExitCodes(t *testing.T) {
	for code, want := range map[ckpt.Code]int{
		ckpt.CodeInvalid: 1, ckpt.CodeDenied: 1, ckpt.CodeNotFound: 3, ckpt.CodeConflict: 4, ckpt.CodeFenced: 4,
		ckpt.CodeBaseMissing: 4, ckpt.CodeFilesMissing: 4, ckpt.CodeTooLarge: 1, ckpt.CodeIdempotencyMismatch: 4, ckpt.CodeSchemaMismatch: 1,
		ckpt.CodeQuota: 75, ckpt.CodeBusy: 75, ckpt.CodeCorrupt: 5, ckpt.CodeStorageFull: 75, ckpt.CodeNotReplicated: 75, ckpt.CodeInternal: 1,
	} {
		if got := cli.ExitCode(fmt.Errorf("wrapped: %w", ckpt.Errorf(code, "x"))); got != want {
			t.Errorf("%s: %d, want %d", code, got, want)
		}
	}
	if got := cli.ExitCode(errors.New("x")); got != 1 {
		t.Error(got)
	}
	if got := cli.MessageOf(context.Canceled); !strings.Contains(got, "interrupted") {
		t.Error(got)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestStatusShowsNoInventedNumbers: the daemon leaves out the numbers of all users for a caller who is not an
// administrator, and status does not print them as 0.
func TestStatusShowsNoInventedNumbers(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	a := &app{App: &cli.App{Flags: &cli.Flags{}, Stdout: &out, Out: &term.Style{}}}
	s := &ckpt.Status{Version: "1.2.3", State: "ready", Endpoint: "/run/s", Database: ckpt.DatabaseStatus{Path: "/x.db", SchemaVersion: 1, SQLite: "3.50"}}
	statusText(a, s)
	text := out.String()
	for _, invented := range []string{"/x.db, 0 B", "journal", "writing", "0 runs watched", "0 rows", "none\n"} {
		if strings.Contains(text, invented) {
			t.Errorf("it says %q:\n%s", invented, text)
		}
	}
	if !strings.Contains(text, "Only administrators see") || !strings.Contains(text, "nothing is open") {
		t.Errorf("it does not say what is left out:\n%s", text)
	}
	out.Reset()
	s.Database.Bytes, s.Database.AuditRows, s.Drift.Watched = 4096, 2, 1
	statusText(a, s)
	for _, want := range []string{"/x.db, 4.10 kB", "journal", "0 writes", "1 run watched", "2 rows"} {
		if text := out.String(); !strings.Contains(text, want) || strings.Contains(text, "Only administrators") {
			t.Errorf("an administrator does not see %q:\n%s", want, text)
		}
	}
}

// TestARunOfAnotherHostIsNotOffered: run show names the host that owns the run, and no command that is refused here.
func TestARunOfAnotherHostIsNotOffered(t *testing.T) {
	t.Parallel()
	var out, told bytes.Buffer
	a := &app{App: &cli.App{Flags: &cli.Flags{}, Stdout: &out, Stderr: &told, Out: &term.Style{}, Err: &term.Style{}}}
	r := &ckpt.Run{Agent: "a", Run: "main", Status: ckpt.RunInterrupted}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(a.showRun(r))
	if !strings.Contains(told.String(), "ckptsidecar exec --agent a --run main") {
		t.Errorf("a run of this host: %s", &told)
	}
	told.Reset()
	r.Ownership, r.Host = ckpt.OwnershipFenced, "build-2"
	must(a.showRun(r))
	if text := told.String(); strings.Contains(text, "resume") || !strings.Contains(text, "host build-2 of the fleet owns this run") {
		t.Errorf("a run of another host: %s", text)
	}
}

// TestTheDiskIsWhereTheDatabaseWouldBe: the nearest existing folder is used.
func TestTheDiskIsWhereTheDatabaseWouldBe(t *testing.T) {
	home := t.TempDir()
	a := &app{App: &cli.App{Flags: &cli.Flags{}, Env: func(name string) string {
		return map[string]string{"CKPTSIDECAR_DB": filepath.Join(home, "a", "b", "x.db")}[name]
	}}}
	if got, err := a.databaseFolder(); err != nil || got != home {
		t.Errorf("%q, %v; want %q", got, err, home)
	}
}
