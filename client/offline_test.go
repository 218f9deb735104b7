package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/client"
)

// offlineToo lets an operation begin while the daemon is away.
var offlineToo = client.OperationOptions{Offline: client.AllowOffline}

// TestARunGoesOnFromTheSpool: while the daemon is away, a later process of a run does nothing again
// that an earlier one has spooled as done. When the daemon is back, everything is recorded once.
func TestARunGoesOnFromTheSpool(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	ctx, times := t.Context(), map[string]int{}
	step := func(run *client.Run, key string) {
		t.Helper()
		got, err := client.Step(ctx, run, key, func(context.Context) (string, error) { times["step "+key]++; return key, nil })
		if err != nil || got != key {
			t.Errorf("step %s: %q, %v", key, got, err)
		}
	}
	operation := func(run *client.Run, key string, state any) {
		t.Helper()
		if _, err := run.Operation(ctx, key, state, func(context.Context) error { times["operation "+key]++; return nil }, offlineToo); err != nil {
			t.Errorf("operation %s: %v", key, err)
		}
	}
	restored := func(run *client.Run, want int) {
		t.Helper()
		var got state
		if found, err := run.Restore(&got); !found || err != nil || got.Step != want {
			t.Errorf("it goes on from %+v (%t, %v), want %d", got, found, err, want)
		}
	}

	first, err := d.open(t, failOpen).Agent("a").Start(ctx, client.RunOptions{})
	must(t, err)
	if first.Plan.Verdict != ckpt.VerdictOffline {
		t.Errorf("the first plan is %+v", first.Plan)
	}
	step(first, "before the save")
	_, err = first.Save(ctx, state{Step: 1})
	must(t, err)
	step(first, "a/b?c")
	operation(first, "pay", nil)
	if _, err := first.Operation(ctx, "refused", nil, func(context.Context) error { return client.NotDone(errors.New("no")) }, offlineToo); err == nil {
		t.Error("it did not fail")
	}
	dies(func() {
		_, _ = client.Step(ctx, first, "half", func(context.Context) (string, error) { runtime.Goexit(); return "", nil })
	})

	second, err := d.open(t, failOpen).Agent("a").Start(ctx, client.RunOptions{})
	must(t, err)
	plan := second.Plan
	if plan.Verdict != ckpt.VerdictOffline || plan.Claimed || len(plan.CompletedSteps) != 1 || plan.CompletedSteps[0].Key != "a/b?c" ||
		string(plan.CompletedSteps[0].Result) != `"a/b?c"` || len(plan.InterruptedSteps) != 1 || plan.InterruptedSteps[0].Key != "half" {
		t.Errorf("the second plan is %+v", plan)
	}
	restored(second, 1)
	for _, key := range []string{"before the save", "a/b?c", "half"} {
		step(second, key)
	}
	for _, key := range []string{"pay", "refused"} {
		operation(second, key, nil)
	}
	dies(func() {
		_, _ = second.Operation(ctx, "risky", state{Step: 2}, func(context.Context) error { runtime.Goexit(); return nil }, offlineToo)
	})

	var ask *client.NeedsOperator
	_, err = d.open(t, failOpen).Agent("a").Start(ctx, client.RunOptions{})
	if !errors.As(err, &ask) || ask.Plan.Verdict != ckpt.VerdictAsk || len(ask.Plan.UncertainOperations) != 1 ||
		!strings.Contains(err.Error(), "operation risky") || !strings.Contains(err.Error(), "ckptsidecar operation resolve a risky") {
		t.Fatalf("without the daemon: %v", err)
	}
	d.start()
	c := d.open(t)
	if _, err = c.Agent("a").Start(ctx, client.RunOptions{}); !errors.As(err, &ask) || ask.Plan.Verdict != ckpt.VerdictAsk {
		t.Fatalf("with the daemon: %v", err)
	}
	ref := ckpt.RunRef{Agent: "a", Run: "main"}
	_, _, err = c.Wire().ResolveOperation(ctx, ref, ckpt.OperationResolution{Key: "risky", Choice: ckpt.ChoiceItDid})
	must(t, err)
	third, err := c.Agent("a").Start(ctx, client.RunOptions{})
	must(t, err)
	restored(third, 2)
	for _, key := range []string{"before the save", "a/b?c", "half"} {
		step(third, key)
	}
	for _, key := range []string{"pay", "refused", "risky"} {
		operation(third, key, nil)
	}
	must(t, third.End(ctx, ckpt.EndRequest{Status: ckpt.RunCompleted}))
	for what, n := range times {
		if n != 1 {
			t.Errorf("%s was done %d times", what, n)
		}
	}

	var recorded []string
	steps, err := c.Wire().Steps(ctx, ref, ckpt.ListFilter{})
	must(t, err)
	for _, s := range steps.Steps {
		recorded = append(recorded, fmt.Sprintf("step %s %s %d", s.Key, s.Status, s.Attempt))
	}
	operations, err := c.Wire().Operations(ctx, ref, ckpt.ListFilter{})
	must(t, err)
	for _, o := range operations.Operations {
		recorded = append(recorded, fmt.Sprintf("operation %s %s %d", o.Key, o.Status, o.Attempt))
	}
	slices.Sort(recorded)
	want := []string{
		"operation pay succeeded 1", "operation refused failed 1", "operation refused succeeded 2", "operation risky succeeded 1",
		"step a/b?c succeeded 1", "step before the save succeeded 1", "step half succeeded 2",
	}
	if !slices.Equal(recorded, want) {
		t.Errorf("recorded is %q", recorded)
	}
}

// dies calls f, which ends its goroutine, as if its process died.
func dies(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

// TestWhatCannotBeReadIsNotKnown: a run does nothing that a file of the spool, which it cannot read,
// may say was done.
func TestWhatCannotBeReadIsNotKnown(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	ctx := t.Context()
	did := func(context.Context) (int, error) { return 1, nil }
	pay := func(context.Context) error { return nil }
	first, err := d.open(t, failOpen).Agent("a").Start(ctx, client.RunOptions{})
	must(t, err)
	_, err = client.Step(ctx, first, "s", did)
	must(t, err)
	_, err = first.Operation(ctx, "pay", nil, pay, offlineToo)
	must(t, err)
	_, err = first.Save(ctx, state{Step: 1})
	must(t, err)
	files, _ := filepath.Glob(filepath.Join(d.dir, "spool", "*.ckpt"))
	for i, change := range map[int][2]string{2: {`"name":"pay"`, `"name":"day"`}, 3: {`"version":1`, `"version":2`}} {
		content, err := os.ReadFile(files[i])
		must(t, err)
		must(t, os.WriteFile(files[i], []byte(strings.Replace(string(content), change[0], change[1], 1)), 0o600))
	}
	for range 2 { // the second one asks nobody about what the first one has not begun
		run, err := d.open(t, failOpen).Agent("a").Start(ctx, client.RunOptions{})
		must(t, err)
		var got state
		if found, err := run.Restore(&got); !found || err != nil || got.Step != 1 || run.Plan.Verdict != ckpt.VerdictOffline {
			t.Errorf("it goes on from %+v (%t, %v), plan %+v", got, found, err, run.Plan)
		}
		if s := run.Plan.Skipped; len(s) != 2 || s[0].ID != filepath.Base(files[2]) || !strings.Contains(s[1].Reason, "newer version") {
			t.Errorf("skipped are %+v", s)
		}
		if got, err := client.Step(ctx, run, "s", func(context.Context) (int, error) { return 2, nil }); got != 1 || err != nil {
			t.Errorf("step s: %d, %v", got, err)
		}
		if _, err := client.Step(ctx, run, "other", did); err == nil || !strings.Contains(err.Error(), "it is not known") {
			t.Errorf("another step: %v", err)
		}
		if done, err := run.Operation(ctx, "pay", nil, pay, offlineToo); done || err == nil || !strings.Contains(err.Error(), "it is not known") {
			t.Errorf("the operation: %t, %v", done, err)
		}
		if len(run.Plan.InterruptedSteps) > 0 {
			t.Errorf("these steps were not begun: %+v", run.Plan.InterruptedSteps)
		}
	}
}

// TestOnlyTheSpoolOfTheRun: a run takes nothing from writes of another run, daemon or owner.
func TestOnlyTheSpoolOfTheRun(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	ctx := t.Context()
	for name, open := range map[string]func(*client.Client){
		"a run":    func(*client.Client) {},
		"a daemon": func(c *client.Client) { c.Socket += "2" },
		"an owner": func(c *client.Client) { c.Owner = "uid:7" },
	} {
		run := "main"
		if name == "a run" {
			run = "other"
		}
		_, err := d.open(t, failOpen, open).Agent("a").Save(ctx, name, client.SaveOptions{Run: run})
		must(t, err)
	}
	run, err := d.open(t, failOpen).Agent("a").Start(ctx, client.RunOptions{})
	must(t, err)
	if run.Plan.Verdict != ckpt.VerdictOffline || run.Plan.Checkpoint != nil {
		t.Errorf("the plan is %+v", run.Plan)
	}
}

// TestARunThatBeginsAnewWithoutADaemonIsStored: it had ended while there was one.
func TestARunThatBeginsAnewWithoutADaemonIsStored(t *testing.T) {
	t.Parallel()
	d := started(t)
	ctx := t.Context()
	work := func(n int, verdict ckpt.ResumeVerdict, change ...func(*client.Client)) {
		t.Helper()
		must(t, d.open(t, change...).Agent("cron").Run(ctx, client.RunOptions{}, func(ctx context.Context, run *client.Run) error {
			if run.Plan.Verdict != verdict {
				t.Errorf("the plan is %+v", run.Plan)
			}
			if _, err := client.Step(ctx, run, "count", func(context.Context) (int, error) { return n, nil }); err != nil {
				return err
			}
			if _, err := run.Operation(ctx, "pay", nil, func(context.Context) error { return nil }, offlineToo); err != nil {
				return err
			}
			_, err := run.Save(ctx, state{Step: n})
			return err
		}))
	}
	work(1, ckpt.VerdictFresh)
	d.stop()
	work(2, ckpt.VerdictOffline, failOpen)
	d.start()
	c := d.open(t)
	if r, err := c.Replay(ctx); err != nil || r.Rejected > 0 || r.Left > 0 || r.Sent == 0 {
		t.Errorf("replayed %+v, %v", r, err)
	}
	run, err := c.Wire().Run(ctx, ckpt.RunRef{Agent: "cron"})
	must(t, err)
	var last state
	_, err = c.Agent("cron").Latest(ctx, &last)
	must(t, err)
	if run.Status != ckpt.RunCompleted || run.Attempt != 2 || last.Step != 2 {
		t.Errorf("%+v, %+v", run, last)
	}
}
