package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/client"
)

// TestOnceWithoutADaemon: what this process or an earlier one has done is not done again while the
// daemon is away.
func TestOnceWithoutADaemon(t *testing.T) {
	t.Parallel()
	d := started(t)
	ctx, twice := t.Context(), map[string]int{}
	step := func(run *client.Run, key string) {
		t.Helper()
		got, err := client.Step(ctx, run, key, func(context.Context) (string, error) { twice["step "+key]++; return key, nil })
		if err != nil || got != key {
			t.Errorf("step %s: %q, %v", key, got, err)
		}
	}
	operation := func(run *client.Run, key string) {
		t.Helper()
		if _, err := run.Operation(ctx, key, nil, func(context.Context) error { twice["operation "+key]++; return nil }, offlineToo); err != nil {
			t.Errorf("operation %s: %v", key, err)
		}
	}
	first, err := d.open(t).Agent("a").Start(ctx, client.RunOptions{})
	must(t, err)
	step(first, "before the save")
	operation(first, "before the save")
	_, err = first.Save(ctx, state{1, "x"})
	must(t, err)
	step(first, "after the save")
	must(t, first.End(ctx, ckpt.EndRequest{Status: ckpt.RunInterrupted}))

	run, err := d.open(t, failOpen, func(c *client.Client) { c.Deadline = 2 * time.Second }).Agent("a").Start(ctx, client.RunOptions{})
	must(t, err)
	step(run, "now")
	operation(run, "now")
	d.stop()
	for _, key := range []string{"before the save", "after the save", "now", "away", "away"} {
		step(run, key)
		if key != "after the save" {
			operation(run, key)
		}
	}
	for what, times := range twice {
		if times != 1 {
			t.Errorf("%s was done %d times", what, times)
		}
	}
}

// TestALongErrorIsRecorded: an error may contain the output of a program.
func TestALongErrorIsRecorded(t *testing.T) {
	t.Parallel()
	c := started(t).open(t)
	long := errors.New(strings.Repeat("é", ckpt.MaxText) + "\xff")
	err := c.Agent("a").Run(t.Context(), client.RunOptions{}, func(ctx context.Context, run *client.Run) error {
		if _, err := client.Step(ctx, run, "s", func(context.Context) (int, error) { return 0, long }); err != long {
			t.Errorf("the step: %.200v", err)
		}
		_, err := run.Operation(ctx, "o", nil, func(context.Context) error { return long })
		return err
	})
	if strings.Contains(err.Error(), "too_large") {
		t.Error("it could not be recorded")
	}
	ref := ckpt.RunRef{Agent: "a", Run: "main"}
	run, err := c.Wire().Run(t.Context(), ref)
	must(t, err)
	steps, err := c.Wire().Steps(t.Context(), ref, ckpt.ListFilter{})
	must(t, err)
	operations, err := c.Wire().Operations(t.Context(), ref, ckpt.ListFilter{})
	must(t, err)
	if run.Status != ckpt.RunInterrupted || steps.Steps[0].Status != ckpt.StepFailed || operations.Operations[0].Status != ckpt.OperationUncertain {
		t.Errorf("run %s, step %s, operation %s", run.Status, steps.Steps[0].Status, operations.Operations[0].Status)
	}
}

// TestAnEndThatFailedMayBeRepeated: an end that was not recorded is no end.
func TestAnEndThatFailedMayBeRepeated(t *testing.T) {
	t.Parallel()
	d := started(t)
	c := d.open(t)
	run, err := c.Agent("a").Start(t.Context(), client.RunOptions{})
	must(t, err)
	d.stop()
	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if run.End(soon, ckpt.EndRequest{Status: ckpt.RunCompleted}) == nil {
		t.Fatal("it ended without a daemon")
	}
	d.start()
	must(t, run.End(t.Context(), ckpt.EndRequest{Status: ckpt.RunCompleted}))
	now, err := c.Wire().Run(t.Context(), ckpt.RunRef{Agent: "a", Run: "main"})
	if err != nil || now.Status != ckpt.RunCompleted {
		t.Errorf("%+v, %v", now, err)
	}
}
