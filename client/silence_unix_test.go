//go:build unix

package client

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestNoCallWaitsForASilentDaemonForEver covers the calls that are not spooled.
func TestNoCallWaitsForASilentDaemonForEver(t *testing.T) {
	dir, err := os.MkdirTemp("", "c")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "s")
	silent, err := net.Listen("unix", socket) // it accepts nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	c := &Client{Socket: socket, Deadline: -1}
	defer c.Close()
	a := c.Agent("a")
	r := &Run{Agent: a, Name: "main"}
	c.delivery.silence = 10 * time.Millisecond
	quick := &Client{Socket: socket, Deadline: 10 * time.Millisecond, FailOpen: true}
	defer quick.Close()
	begun := &Run{Agent: quick.Agent("a"), Name: "main", epoch: new(int64), options: RunOptions{Goal: "a goal"}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for name, call := range map[string]func() error{
		"Restore": func() error { _, err := a.Restore(ctx, nil); return err },
		"Latest":  func() error { _, err := a.Latest(ctx, nil); return err },
		"List":    func() error { _, err := a.List(ctx, ckpt.CheckpointFilter{}); return err },
		"Diff": func() error {
			_, err := a.Diff(ctx, "01986f0c-3c1e-7a44-9d51-0f6a3c9be001", "01986f0c-3c1e-7a44-9d51-0f6a3c9be002")
			return err
		},
		"SetPolicy": func() error { _, err := a.SetPolicy(ctx, ckpt.DefaultPolicy()); return err },
		"Report":    func() error { _, err := r.Report(ctx, ckpt.FindingRequest{Rule: "rule", Message: "text"}); return err },
		"Dismiss":   func() error { _, err := r.Dismiss(ctx, "01986f0c-3c1e-7a44-9d51-0f6a3c9be001", "why"); return err },
		"Ask":       func() error { _, err := r.Ask(ctx, "why?", Question{}); return err },
		"describe":  func() error { return begun.describe(ctx) }, // a start waits only for the deadline
		"Save":      func() error { _, err := a.Save(ctx, 1); return err },
	} {
		if err := call(); !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			t.Errorf("%s: %v, %v", name, err, ctx.Err())
		}
	}
}
