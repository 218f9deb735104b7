package main

import (
	"context"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

type runDeleteCmd struct {
	Agent string `arg:"" help:"The agent's name."`
	InRun string `name:"run" required:"" help:"The run." placeholder:"NAME"`
	Force bool   `help:"Delete even if the owner is alive, or an operation is open or uncertain. For administrators."`
}

// Help returns the text that `run delete --help` adds.
func (c *runDeleteCmd) Help() string {
	return "It is refused while the run's owner lives, while an operation is open or uncertain, and while a checkpoint is pinned. " +
		"The audit log keeps that the run was there and who removed it."
}

func (c *runDeleteCmd) Run(ctx context.Context, a *app) error {
	ref := ckpt.RunRef{Agent: c.Agent, Run: c.InRun}
	if err := cli.Checked(ref.Check()); err != nil {
		return err
	}
	gone, err := a.Client().DeleteRun(ctx, ref, c.Force)
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(gone)
	}
	term.Printf(a.Stdout, "%s/%s  deleted: %s, and %s that belonged to it\n", gone.Agent, gone.Run,
		term.Count(gone.Checkpoints, "checkpoint"), term.Count(gone.Rows, "row"))
	for _, o := range gone.Uncertain {
		a.Tell("operation %s, attempt %d, was %s: nobody knows whether it took effect, and nobody is asked about it any more", o.Key, o.Attempt, o.Status)
	}
	return nil
}

type runClearCmd struct {
	Agent string `arg:"" help:"The agent's name."`
	InRun string `name:"run" help:"The run. Default: main, or under exec its run." placeholder:"NAME"`
}

// Help returns the text that `run clear --help` adds.
func (c *runClearCmd) Help() string {
	return "What is pinned stays, and what an operation, a prompt or a fork needs. The run, its steps and its events stay as well."
}

func (c *runClearCmd) Run(ctx context.Context, a *app) error {
	ref := ckpt.RunRef{Agent: c.Agent, Run: a.InRun(c.Agent, c.InRun)}
	if err := cli.Checked(ref.Check()); err != nil {
		return err
	}
	gone, err := a.Client().ClearRun(ctx, ref)
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(gone)
	}
	term.Printf(a.Stdout, "%s/%s  cleared: %s went, %d stayed\n", gone.Agent, gone.Run, term.Count(gone.Removed, "checkpoint"), gone.Kept)
	return nil
}
