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
	if run.Status != ckpt.RunInterrupted || steps.Steps[0].Status != ckpt.StepFailed || operations.Operations[0].Status != ckpt.OperationFailed {
		t.Errorf("run %s, step %s, operation %s", run.Status, steps.Steps[0].Status, operations.Operations[0].Status)
	}
}

// TestAnEndThatFailedMayBeRepeated: an end that was not recorded is no end.
func TestAnEndThatFailedMayBeRepeated(t *testing.T) {
	t.Parallel()
	d := started(t)
	c := d.open(t, func(c *client.Client) { c.Deadline = 100 * time.Millisecond })
	run, err := c.Agent("a").Start(t.Context(), client.RunOptions{})
	must(t, err)
	d.stop()
	if run.End(t.Context(), ckpt.EndRequest{Status: ckpt.RunCompleted}) == nil {
		t.Fatal("it ended without a daemon")
	}
	d.start()
	must(t, run.End(t.Context(), ckpt.EndRequest{Status: ckpt.RunCompleted}))
	now, err := c.Wire().Run(t.Context(), ckpt.RunRef{Agent: "a", Run: "main"})
	if err != nil || now.Status != ckpt.RunCompleted {
		t.Errorf("%+v, %v", now, err)
	}
}
