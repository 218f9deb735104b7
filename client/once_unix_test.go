//go:build unix

package client_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/client"
)

// TestACanceledOperationWasNotBegun: a person is asked only about what may have happened.
func TestACanceledOperationWasNotBegun(t *testing.T) {
	t.Parallel()
	d := started(t)
	c := d.open(t)
	run, err := c.Agent("a").Start(t.Context(), client.RunOptions{})
	must(t, err)
	for wait := 10 * time.Millisecond; ; wait *= 2 { // until the daemon does not answer before the call is given up
		must(t, d.cmd.Process.Signal(syscall.SIGSTOP))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		goesOn := make(chan error, 1)
		context.AfterFunc(ctx, func() { time.Sleep(wait); goesOn <- d.cmd.Process.Signal(syscall.SIGCONT) })
		done, err := run.Operation(ctx, fmt.Sprint("pay ", wait), nil, func(context.Context) error { return nil })
		cancel()
		must(t, <-goesOn)
		if !done {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("it failed for another reason: %v", err)
			}
			break
		}
	}
	must(t, run.End(t.Context(), ckpt.EndRequest{Status: ckpt.RunInterrupted}))
	operations, err := c.Wire().Operations(t.Context(), ckpt.RunRef{Agent: "a", Run: "main"}, ckpt.ListFilter{})
	must(t, err)
	for _, o := range operations.Operations {
		if o.Status == ckpt.OperationUncertain {
			t.Errorf("operation %s is %s", o.Key, o.Status)
		}
	}
}

// TestASilentDaemonHoldsNobodyUp: a daemon that does not answer at all is as good as none, also
// when writes of the run wait already.
func TestASilentDaemonHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	d := started(t)
	c := d.open(t, failOpen)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	run, err := d.open(t).Agent("a").Start(ctx, client.RunOptions{})
	must(t, err)
	run.Agent = c.Agent("a")
	must(t, d.cmd.Process.Signal(syscall.SIGSTOP))
	var status syscall.WaitStatus
	for !status.Stopped() {
		_, err := syscall.Wait4(d.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		saved, err := run.Save(ctx, state{Step: i})
		if err != nil || saved.Fate != client.Spooled {
			t.Fatalf("save %d: %+v, %v", i, saved, err)
		}
	}
	_, err = client.Step(ctx, run, "s", func(context.Context) (int, error) { return 7, nil })
	must(t, err)
	must(t, d.cmd.Process.Signal(syscall.SIGCONT))
	if r, err := c.Replay(ctx); err != nil || r.Left+r.Rejected+r.Other > 0 {
		t.Errorf("%+v, %v", r, err)
	}
	steps, err := c.Wire().Steps(ctx, ckpt.RunRef{Agent: "a"}, ckpt.ListFilter{})
	if err != nil || len(steps.Steps) != 1 || string(steps.Steps[0].Result) != "7" {
		t.Errorf("%+v, %v", steps, err)
	}
	if ids := all(t, c, "a"); len(ids) != 3 {
		t.Errorf("%d saves are there", len(ids))
	}
}
