package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/client"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// The functions below are the snippets of docs/GO.md. TestDocs compares them
// with the document, and TestSnippets runs them.

func threeLines(ctx context.Context, state any) error {
	var sidecar client.Client
	saved, err := sidecar.Agent("fixer").Save(ctx, state)
	if err != nil {
		return err
	}
	fmt.Println(saved.ID, saved.SHA256)
	return nil
}

func readBack(ctx context.Context, sidecar *client.Client) error {
	var state map[string]any
	checkpoint, err := sidecar.Agent("fixer").Restore(ctx, &state, client.RestoreOptions{Clean: true, Reason: "started again"})
	if ckpt.CodeOf(err) == ckpt.CodeNotFound {
		return nil // nothing was saved yet
	}
	if err != nil {
		return err
	}
	fmt.Println(checkpoint.Seq, state)
	return nil
}

func autosaved(ctx context.Context, run *client.Run, current func() any) {
	run.State(current)
	stop := run.Autosave(ctx, 15*time.Second)
	defer stop()
	// … work …
}

func risky(ctx context.Context, run *client.Run, state any, deploy func(context.Context) error) error {
	done, err := run.Operation(ctx, "deploy-42", state, deploy)
	var failed *client.OperationError
	if errors.As(err, &failed) && failed.Restore != nil {
		fmt.Println("back to", failed.Restore.ID, string(failed.Restore.State))
	}
	fmt.Println("done now:", done) // false where it had succeeded before
	return err
}

func charge(ctx context.Context, run *client.Run, order string, pay func(ctx context.Context, idempotencyKey string) (Receipt, error)) error {
	receipt, op, err := client.Operation(ctx, run, "charge-"+order, func(ctx context.Context, op *client.Op) (Receipt, error) {
		receipt, err := pay(ctx, op.Key) // the provider does the same key once
		if errors.Is(err, errCardRefused) {
			return receipt, client.NotDone(err) // it is known that nothing was charged
		}
		return receipt, err // any other error leaves the operation uncertain
	}, client.OperationOptions{Args: map[string]any{"order": order, "cents": 4200}, Idempotent: true})
	if err != nil {
		return err
	}
	fmt.Println(receipt.ID, op.Done, op.ResolvedBy)
	return nil
}

// Receipt is what a payment provider answers.
type Receipt struct{ ID string }

var errCardRefused = errors.New("the card was refused")

func notSafe(ctx context.Context, agent *client.Agent, work func(context.Context, *client.Run) error) error {
	err := agent.Run(ctx, client.RunOptions{}, work)
	var wait *client.NeedsOperator
	if errors.As(err, &wait) {
		fmt.Println(wait.Plan.Verdict, wait.Plan.Reasons) // ask or unsafe
	}
	return err
}

func withoutDaemon(ctx context.Context, state any) error {
	sidecar := client.Client{FailOpen: true, Deadline: 200 * time.Millisecond}
	saved, err := sidecar.Agent("fixer").Save(ctx, state)
	if err != nil {
		return err // the spool is full or cannot be written
	}
	fmt.Println(saved.Fate) // stored, or spooled
	return nil
}

func TestSnippets(t *testing.T) {
	d := started(t)
	t.Setenv("CKPTSIDECAR_SOCKET", d.socket)
	t.Setenv("CKPTSIDECAR_SPOOL", filepath.Join(d.dir, "spool"))
	state := map[string]any{"n": 1}
	c := d.open(t)
	must(t, threeLines(t.Context(), state))
	must(t, readBack(t.Context(), c))
	must(t, withoutDaemon(t.Context(), state))
	must(t, notSafe(t.Context(), c.Agent("b"), func(ctx context.Context, run *client.Run) error {
		autosaved(ctx, run, func() any { return state })
		if err := charge(ctx, run, "7", func(context.Context, string) (Receipt, error) { return Receipt{"r1"}, nil }); err != nil {
			return err
		}
		return risky(ctx, run, state, func(context.Context) error { return nil })
	}))
	d.stop()
	must(t, withoutDaemon(t.Context(), state))
}

// TestDocs: every Go snippet in the documents is in code that a test runs.
func TestDocs(t *testing.T) {
	var text []byte
	for _, name := range []string{"../docs/GO.md", "../docs/QUICKSTART.md", "../README.md"} {
		page, err := os.ReadFile(name)
		must(t, err)
		text = append(text, page...)
	}
	var code []string
	for _, name := range []string{"example_test.go", "../examples/go/main.go"} {
		source, err := os.ReadFile(name)
		must(t, err)
		code = append(code, flat(string(source)))
	}
	blocks := 0
	for i, part := range strings.Split(string(text), "```") {
		snippet, isGo := strings.CutPrefix(part, "go\n")
		if i%2 == 0 || !isGo {
			continue
		}
		blocks++
		if !strings.Contains(code[0], flat(snippet)) && !strings.Contains(code[1], flat(snippet)) {
			t.Errorf("no test runs this snippet of the documents:\n%s", snippet)
		}
	}
	if blocks < 5 {
		t.Errorf("only %d snippets were found", blocks)
	}
}

// flat removes the indentation.
func flat(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "\n")
}

// TestExample runs the worker of examples/go, kills it in the middle and lets it
// finish.
func TestExample(t *testing.T) {
	t.Parallel()
	d := started(t)
	path := filepath.Join(d.dir, "worker")
	if out, err := exec.Command("go", "build", "-o", path, "../examples/go").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := func() *exec.Cmd {
		cmd := exec.Command(path)
		cmd.Env = append(os.Environ(), "CKPTSIDECAR_SOCKET="+d.socket)
		return cmd
	}
	first := run()
	must(t, first.Start())
	c := d.open(t)
	expect.Soon(t, "the worker saves", func() bool {
		ck, err := c.Wire().Latest(t.Context(), ckpt.CheckpointFilter{Agent: "crawler", Run: "nightly"}, false)
		return err == nil && ck.Seq >= 3
	})
	must(t, first.Process.Kill())
	_ = first.Wait()
	out, err := run().Output()
	if err != nil || !strings.Contains(string(out), "going on at page") || !strings.HasSuffix(string(out), "published: 10045 words\n") {
		t.Errorf("%v\n%s", err, out)
	}
}
