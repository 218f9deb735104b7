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
