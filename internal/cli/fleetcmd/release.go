package fleetcmd

import (
	"context"
	"fmt"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/host"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

type releaseCmd struct {
	Name string `arg:"" name:"run" help:"The run: AGENT, or AGENT/RUN." placeholder:"AGENT[/RUN]"`
}

// Help returns the additional text of `fleet release --help`.
func (c *releaseCmd) Help() string {
	return "The engine gets everything first. Then another host may claim the run at once, " +
		"without waiting for this host's lease. A run that is running is refused. " +
		"Who resumes the run here first keeps it here."
}

func (c *releaseCmd) Run(ctx context.Context, a *cli.App) error {
	ref := ckpt.RunRef{}
	ref.Agent, ref.Run, _ = strings.Cut(c.Name, "/")
	if err := cli.Checked(ref.Check()); err != nil {
		return err
	}
	done, err := client.Operator{Client: a.Client()}.ReleaseRun(ctx, ref)
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(done)
	}
	term.Printf(a.Stdout, "%s  run %s of %s: another host may claim it now\n", a.Out.Green("released"), done.Run, done.Agent)
	return nil
}

type forgetCmd struct {
	Host        string `arg:"" help:"The host: its name, or its database." placeholder:"HOST"`
	engineFlags `embed:""`
	DeleteRuns  bool `help:"Delete the runs that the engine has of the host."`
}

// Help returns the additional text of `fleet forget --help`.
func (c *forgetCmd) Help() string {
	return "The command asks the engine itself. If each host has a role of its own, give the URL of the role that has migrated. " +
		"A host is refused while its lease lasts, and until the engine has not heard of it for two minutes. " +
		"A host that has runs in the engine is refused too: claim the runs first, or add --delete-runs.\n" +
		"The audit log of the host stays in the engine. If the host comes back, it is a member again. " +
		"Then it erases what was erased meanwhile, and ships the runs that it has and the engine lacks."
}

func (c *forgetCmd) Run(ctx context.Context, a *cli.App) error {
	url, err := c.find(a)
	if err != nil {
		return err
	}
	h, err := host.Forget(ctx, url, c.Host, c.DeleteRuns)
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(h)
	}
	a.Out.Hanging(a.Stdout, a.Out.Green("forgotten")+"  ", term.Escape(fmt.Sprintf("host %s: no erasure waits for it; deleted from the engine: %s",
		h.Name, term.Count(h.Runs, "run"))))
	return nil
}

type drainCmd struct {
	Undo bool `help:"Take the runs up again."`
}

// Help returns the additional text of `fleet drain --help`.
func (c *drainCmd) Help() string {
	return "For administrators, before maintenance. Nothing begins on this host any more for agents " +
		"with takeover: auto, and exec stops them. When none can believe any more that this host holds its lease, " +
		"the engine gets everything, and other hosts may claim the runs at once. " +
		"This takes as long as the rest of the lease.\n" +
		"The daemon stays drained until it starts again, or until ckptsidecar fleet drain --undo."
}

func (c *drainCmd) Run(ctx context.Context, a *cli.App) error {
	if !c.Undo {
		a.Tell("waiting until the agents of this host have stopped")
	}
	done, err := client.Operator{Client: a.Client()}.Drain(ctx, fleet.DrainRequest{Undo: c.Undo})
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(done)
	case c.Undo:
		term.Printf(a.Stdout, "host %s takes up its runs again\n", done.Host)
		return nil
	}
	term.Printf(a.Stdout, "%s  host %s: other hosts may claim its runs now\n", a.Out.Green("drained"), done.Host)
	return nil
}
