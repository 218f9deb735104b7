package client

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// TestOnlyTheAgentCancelsAWrite: a write whose time is over is spooled, whoever set the limit. A
// write that the agent cancels is not.
func TestOnlyTheAgentCancelsAWrite(t *testing.T) {
	forever := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	write := func(ctx context.Context, deadline time.Duration) error {
		s := &spool{dir: filepath.Join(t.TempDir(), "spool"), most: 1 << 20, log: slog.Default}
		d := &delivery{spool: s, deadline: deadline, silence: silenceMost, failOpen: true, log: slog.Default}
		return d.Write(ctx, &client.Request{Agent: "a", Run: "main", Method: "POST", Path: "/v1/agents/a/runs/main/end"}, forever)
	}
	kept := func(t *testing.T, err error) {
		t.Helper()
		var kept *KeptError
		if !errors.As(err, &kept) {
			t.Errorf("it was not spooled: %v", err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		kept(t, write(t.Context(), time.Second))
		kept(t, write(t.Context(), -1)) // not even a daemon that says nothing holds it up
		ctx, cancel := within(t.Context(), endMost)
		defer cancel()
		kept(t, write(ctx, time.Hour))
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := write(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the agent canceled it: %v", err)
		}
	})
}
