package main

import (
	"context"
	"fmt"
	"log/slog"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/client"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/view"
	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

type resumeCmd struct {
	Agent            string         `arg:"" help:"The agent's name."`
	InRun            string         `name:"run" help:"The run. Default: main, or under exec its run." placeholder:"NAME"`
	Output           string         `short:"o" help:"Write the state to go on from to this file, whole or not at all." placeholder:"FILE"`
	DryRun           bool           `help:"Only look: claim and change nothing."`
	Force            bool           `help:"Take the run over from an owner that is alive. Its writes are refused from then on."`
	Reason           string         `help:"Why, for the audit log." placeholder:"TEXT"`
	LeaveUncertain   bool           `help:"Go on although nobody knows whether an operation took effect: it stays uncertain, and does not begin again. Needs a --reason."`
	Here             bool           `help:"Look at this host only: claim no run of another host of the fleet."`
	PID              int            `name:"pid" help:"The process that owns the run from now on. ${owner_default}" placeholder:"N"`
	HeartbeatTimeout *ckpt.Duration `help:"${heartbeat_timeout}" placeholder:"TIME"`
	ProgressTimeout  *ckpt.Duration `help:"${progress_timeout}" placeholder:"TIME"`
}

// Help returns the text that `resume --help` adds.
func (c *resumeCmd) Help() string {
	return "Exit codes: 0 fresh or resume (go on), 10 repair (go on with the changes that are listed), 20 ask (an " +
		"operator must decide first), 30 unsafe."
}

func (c *resumeCmd) Run(ctx context.Context, a *app) error {
	r := ckpt.ResumeRequest{
		Agent: c.Agent, Run: a.InRun(c.Agent, c.InRun), PID: a.OwnerPID(c.PID), HeartbeatTimeout: c.HeartbeatTimeout,
		ProgressTimeout: c.ProgressTimeout, Reason: c.Reason, DryRun: c.DryRun, Force: c.Force, LeaveUncertain: c.LeaveUncertain,
	}
	if c.Here {
		r.Fleet = new(bool)
	}
	if err := cli.Checked(r.Check()); err != nil {
		return err
	}
	if !c.DryRun { // after the claim, the daemon would refuse them
		if err := sendSpooled(ctx, a, c.Agent, r.Run); err != nil {
			return err
		}
	}
	plan, _, err := a.Client().Resume(ctx, r)
	if err != nil {
		return err
	}
	if err := c.write(a, plan); err != nil {
		return err
	}
	if code := view.ExitOfVerdict(plan.Verdict); code != cli.ExitDone {
		return &cli.ExitError{Code: code}
	}
	return nil
}

// sendSpooled sends the spooled writes of a run.
func sendSpooled(ctx context.Context, a *app, agent, run string) error {
	sender := &client.Client{Socket: a.Socket, Owner: a.Owner, Log: slog.New(slog.DiscardHandler)}
	defer sender.Close()
	done, err := sender.ReplayRun(ctx, agent, run)
	if done.Rejected > 0 {
		a.Tell("the daemon refused %s from the spool for good; to see them: ckptsidecar spool list", term.Count(done.Rejected, "write"))
	}
	return err
}

func (c *resumeCmd) write(a *app, plan *ckpt.Plan) error {
	if c.Output != "" && plan.Checkpoint != nil {
		if err := osfile.Write(c.Output, plan.Checkpoint.State, 0o600); err != nil {
			return fmt.Errorf("the run was resumed (epoch %d), but its state could not be written: %w", plan.Epoch, err)
		}
	}
	if a.JSON {
		return a.WriteJSON(view.PlanShapeOf(plan))
	}
	view.PlanText(a.Stdout, a.Out, plan)
	if c.Output != "" && plan.Checkpoint == nil {
		a.Tell("the run has no state, so %s was not written", c.Output)
	}
	return nil
}
