package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/program"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/foreign"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// serveFor runs a real daemon for a test and returns its socket.
func serveFor(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "foreign-") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	socket := program.OwnSocket(folder)
	cmd := exec.Command("ckptsidecar", "serve", "--while-stdin")
	cmd.Env = append(os.Environ(), "HOME="+folder, "CKPTSIDECAR_SOCKET="+socket, "CKPTSIDECAR_DB="+filepath.Join(folder, "ckpt.db"))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	client := client.Client{Socket: socket}
	defer client.Close()
	expect.Soon(t, "the daemon is ready", func() bool { return client.Ready(t.Context()) == nil })
	return socket
}

// longSnapshot is one of three snapshots of a run with five steps and 2500
// events.
func longSnapshot(minute int) []byte {
	events := strings.TrimSuffix(strings.Repeat(`{"type":"tick"},`, 2500), ",")
	return fmt.Appendf(nil, `{"version":1,"timestamp":"2026-06-30T08:%02d:00Z","runId":"r","workflowId":"w","status":"suspended",
		"stepResults":{"a":1,"b":{"status":"failed","error":"no"},"c":{"status":"running"},"d":2,"e":3},"events":[%s]}`, minute, events)
}

// TestForeignRunsComeWhole: a foreign run is imported completely, with its
// original times, and importing it again changes nothing.
func TestForeignRunsComeWhole(t *testing.T) {
	t.Parallel()
	socket, folder := serveFor(t), t.TempDir()
	c := client.Client{Socket: socket}
	defer c.Close()
	var files []foreign.File
	args := []string{"import", "--format", "workflow-snapshot", "--json", "--socket", socket}
	for n := range 3 {
		f := foreign.File{Name: filepath.Join(folder, fmt.Sprint(n)), Data: longSnapshot(n + 1)}
		if err := os.WriteFile(f.Name, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
		files, args = append(files, f), append(args, f.Name)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	p := &foreign.Snapshots(files, foreign.Options{Owner: "uid:" + me.Uid}).Plans[0]
	for _, want := range []string{"imported", "present"} {
		got := call(t, "", args...)
		if got.code != cli.ExitDone || !strings.Contains(got.stdout, `"outcome": "`+want+`"`) {
			t.Fatalf("exit %d, %s%s; wanted %s", got.code, got.stdout, got.stderr, want)
		}
		checkMoved(t, &c, p)
	}
}

func checkMoved(t *testing.T, c *client.Client, p *foreign.Plan) {
	t.Helper()
	plan, _, err := c.Resume(t.Context(), ckpt.ResumeRequest{Agent: p.Agent, Run: p.Run, DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	if plan.Verdict != ckpt.VerdictRepair || plan.EventsAfter != 2500 || plan.Checkpoint.Seq != 3 || len(plan.CompletedSteps) != 0 || len(plan.InterruptedSteps) != 1 {
		t.Errorf("%s, %d events, checkpoint %d, %d and %d steps", plan.Verdict, plan.EventsAfter, plan.Checkpoint.Seq, len(plan.CompletedSteps), len(plan.InterruptedSteps))
	}
	if !bytes.Equal(plan.Checkpoint.State, p.Saves[2].State) {
		t.Error("the state was changed")
	}
	run, err := c.Run(t.Context(), ckpt.RunRef{Agent: p.Agent, Run: p.Run})
	if err == nil && (run.StartedAt.String() != "2026-06-30T08:01:00.000Z" || run.UpdatedAt.String() != "2026-06-30T08:03:00.000Z" || plan.Checkpoint.CreatedAt != run.UpdatedAt) {
		t.Errorf("the times are those of the import: %+v", run)
	}
	if err != nil || run.Status != ckpt.RunSuspended || run.Attempt != 1 || run.Labels[foreign.LabelDigest] != p.Digest {
		t.Errorf("%+v, %v", run, err)
	}
}

// TestARefusedStateLeavesNothingBehind: if the daemon refuses a state, the
// import leaves no run.
func TestARefusedStateLeavesNothingBehind(t *testing.T) {
	socket := serveFor(t)
	file := filepath.Join(t.TempDir(), "f.json")
	c := client.Client{Socket: socket}
	defer c.Close()
	policy := ckpt.DefaultPolicy()
	policy.Secrets = ckpt.SecretsReject
	if _, err := c.SetPolicy(t.Context(), "w", policy); err != nil {
		t.Fatal(err)
	}
	secret := bytes.Replace(longSnapshot(1), []byte(`"version":1`), []byte(`"version":1,"executionContext":{"api_key":"sk-ant-api03-`+strings.Repeat("aB3x", 24)+`"}`), 1)
	if err := os.WriteFile(file, secret, 0o600); err != nil {
		t.Fatal(err)
	}
	got := call(t, "", "import", "--format", "workflow-snapshot", file, "--socket", socket)
	if got.code != cli.ExitFailed || !strings.Contains(got.stdout, "not imported: run r of w") {
		t.Errorf("exit %d, %s%s", got.code, got.stdout, got.stderr)
	}
	runs, err := c.Runs(context.Background(), ckpt.RunFilter{Agent: "w"})
	if err != nil || len(runs.Runs) != 0 {
		t.Errorf("%v, %v", runs, err)
	}
}

func TestForeignImportsWithoutADaemonSayWhatToDo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f.json")
	if err := os.WriteFile(file, longSnapshot(1), 0o600); err != nil {
		t.Fatal(err)
	}
	got := call(t, "", "import", "--format", "workflow-snapshot", file, file, "--socket", "/nonexistent/sock")
	if got.code != cli.ExitTryLater || !strings.Contains(got.stderr, "ckptsidecar serve") {
		t.Errorf("exit %d, %s", got.code, got.stderr)
	}
	got = call(t, string(longSnapshot(1)), "import", "--format", "workflow-snapshot", "--dry-run", "-", "--json")
	if got.code != cli.ExitDone || !strings.Contains(got.stdout, `"outcome": "would_import"`) {
		t.Errorf("exit %d, %s%s", got.code, got.stdout, got.stderr)
	}
}
