package main

import (
	"context"
	"fmt"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/client"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

type spoolCmd struct {
	Replay spoolReplayCmd `cmd:"" help:"Send spooled writes to the daemon, in order and once."`
	List   spoolListCmd   `cmd:"" default:"withargs" help:"List spooled writes that wait or were refused."`
}

type spoolFolder struct {
	Dir string `help:"The folder of the spool. Default: $$CKPTSIDECAR_SPOOL, then the user's own." placeholder:"DIR"`
}

type spoolReplayCmd struct{ spoolFolder }

// Run replays the spool as a client of this user would. It fails if something is left.
func (c *spoolReplayCmd) Run(ctx context.Context, a *app) error {
	sender := &client.Client{Socket: a.Socket, SpoolDir: c.Dir}
	defer sender.Close()
	done, err := sender.Replay(ctx)
	if err != nil {
		return err
	}
	if a.JSON {
		if err := a.WriteJSON(done); err != nil {
			return err
		}
	} else {
		term.Printf(a.Stdout, "%d sent, %d refused, %d left, %d of another daemon\n", done.Sent, done.Rejected, done.Left, done.Other)
	}
	if done.Left > 0 {
		return &ckpt.Error{Code: ckpt.CodeBusy, Message: fmt.Sprintf("%d writes still wait: %s", done.Left, done.Why)}
	}
	if done.Rejected > 0 {
		return ckpt.Errorf(ckpt.CodeConflict,
			"%d writes were refused for good; the folder rejected in the spool holds each with the reason", done.Rejected)
	}
	return nil
}

type spoolListCmd struct{ spoolFolder }

func (c *spoolListCmd) Run(_ context.Context, a *app) error {
	files, err := client.Spool(c.Dir)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.WriteJSON(struct {
			Files []client.SpooledFile `json:"files"`
		}{files})
	}
	if len(files) == 0 {
		a.Tell("nothing waits")
		return nil
	}
	t := term.NewTable("WHEN", "AGENT", "RUN", "~WHAT", ">SIZE", "STATE", "?FILE")
	for _, f := range files {
		t.Add(a.Out.Time(f.CreatedAt), f.Agent, f.Run, f.What, term.Bytes(f.Size), f.State, f.Path)
	}
	t.Write(a.Stdout, a.Out)
	return nil
}
