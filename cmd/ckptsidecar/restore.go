package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

type restoreCmd struct {
	Agent      string `arg:"" names:"checkpoint" help:"The agent's name, or a checkpoint: ${checkpoint}."`
	Output     string `short:"o" help:"Write the state to this file, whole or not at all, instead of standard output." placeholder:"FILE"`
	Checkpoint string `help:"Which: ${checkpoint}, or its number in the run. Default: the newest that the flags allow." placeholder:"CHECKPOINT"`
	Kind       string `help:"Only a checkpoint of this kind: routine, pre_operation or recovery." placeholder:"KIND"`
	Clean      bool   `help:"Skip suspect checkpoints."`
	InRun      string `name:"run" help:"The run. Default: main, or under exec its run." placeholder:"NAME"`
	Reason     string `help:"Why, for the audit log." placeholder:"TEXT"`
	Force      bool   `help:"Write to a terminal what is not text."`
}

func (c *restoreCmd) Run(ctx context.Context, a *app) error {
	if err := c.resolve(ctx, a); err != nil {
		return err
	}
	if err := c.check(); err != nil {
		return err
	}
	run := c.InRun
	if c.Checkpoint == "" {
		run = a.InRun(c.Agent, run)
	}
	got, _, err := a.Client().Restore(ctx, ckpt.RestoreRequest{
		Agent: c.Agent, Checkpoint: c.Checkpoint, Kind: ckpt.Kind(c.Kind), Clean: c.Clean, Run: run, Reason: c.Reason,
	})
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.writeCheckpoint(got)
	case c.Output != "":
		return c.toFile(a, got)
	case a.Out.Terminal && !c.Force && !isText(got.State):
		return cli.Usagef("the state is %s of %s, which is not printed to a terminal: write it with -o FILE, or add --force",
			term.Bytes(got.Size), got.ContentType)
	}
	to := a.Data()
	if c.Force {
		to = term.Raw(a.Stdout)
	}
	_, err = to.Write(got.State)
	return err
}

// resolve looks up the checkpoint that the user named by the flag or in place of the agent.
func (c *restoreCmd) resolve(ctx context.Context, a *app) (err error) {
	agent, run, found := strings.Cut(c.Agent, "/")
	switch {
	case c.Checkpoint != "":
		if err = c.check(); err == nil {
			c.Checkpoint, err = a.CheckpointIDOf(ctx, c.Agent, a.InRun(c.Agent, c.InRun), c.Checkpoint)
		}
		return err
	case found && ckpt.CheckLife(run) == nil && !strings.Contains(run, "@"):
		c.Agent, c.InRun = agent, cmp.Or(c.InRun, run)
		return nil
	case !strings.ContainsAny(c.Agent, "/@") && !cli.IsPrefix(c.Agent):
		return nil
	}
	named, err := a.Checkpoint(ctx, c.Agent)
	if err != nil || named.Agent == c.Agent {
		return err
	}
	c.Agent, c.Checkpoint, c.InRun = named.Agent, named.ID, cmp.Or(c.InRun, named.Run)
	return nil
}

func (c *restoreCmd) check() error {
	return cli.Checked(
		ckpt.CheckAgentName(c.Agent),
		cli.Given(c.InRun, ckpt.CheckLife),
		cli.Given(c.Kind, func(k string) error { return ckpt.CheckKind(ckpt.Kind(k)) }),
		cli.Given(c.Checkpoint, cli.CheckCheckpointNameOf),
		ckpt.CheckReason(c.Reason),
	)
}

func (c *restoreCmd) toFile(a *app, got *ckpt.Checkpoint) error {
	if err := osfile.Write(c.Output, got.State, 0o600); err != nil {
		return fmt.Errorf("the state was restored, but could not be written: %w", err)
	}
	a.Tell("%s number %d of run %s, %s, to %s", a.Err.Green("restored:"), got.Seq, got.Run, term.Bytes(got.Size), c.Output)
	return nil
}
