package fleetcmd

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

type claimCmd struct {
	Name  string `arg:"" optional:"" name:"run" help:"The run: AGENT, or AGENT/RUN." placeholder:"AGENT[/RUN]"`
	Host  string `help:"Only a run of this host, by its name or its database." placeholder:"NAME"`
	All   bool   `help:"With --host: every run of that host."`
	Force bool   `help:"Claim the run even if its host holds its lease or its policy says never, because you know that the host is lost."`
	cli.ReasonFlag
}

// Help returns the additional text of `fleet claim --help`.
func (c *claimCmd) Help() string {
	return "A user may claim runs of his own principal, an administrator all runs. --force and --owner are for administrators; " +
		"with --owner only an agent of that owner is claimed. " +
		"The daemon of this host asks the engine for the run, and brings it here as it was shipped last.\n" +
		"The engine refuses from then on what the former host ships of the run. If that host comes back, " +
		"its daemon refuses writes to the run too.\n" +
		"A run that was running then waits for a person: nobody knows what it did after that. " +
		"Decide with ckptsidecar operations and ckptsidecar operation resolve.\n" +
		"A host that lacks a key of the run refuses the claim. If the key is lost, and nothing else is in the way, --force brings what opens. " +
		"The rest is lost.\n" +
		"The exit code is 5 if something was left out because the engine's copy of it is damaged or does not open.\n" +
		"With --host HOST --all, every run of a lost host comes here, each as if it was claimed alone. What cannot come is listed. " +
		"Agents that have no run do not come.\n" +
		"If the command fails on its way, run it again."
}

func (c *claimCmd) Run(ctx context.Context, a *cli.App) error {
	switch {
	case c.All && (c.Host == "" || c.Name != ""):
		return cli.Usagef("--all takes every run of a host: name the host with --host, and no run")
	case c.All:
		return c.claimAll(client.WithReason(ctx, c.Reason), a)
	case c.Name == "":
		return cli.Usagef("name the run: ckptsidecar fleet claim AGENT/RUN, or all runs of a host: --host HOST --all")
	}
	r := fleet.ClaimRequest{Host: c.Host, Force: c.Force}
	if a.Owner != "*" {
		r.Owner = a.Owner
	}
	r.Agent, r.Run, _ = strings.Cut(c.Name, "/")
	done, err := client.Operator{Client: a.Client()}.ClaimRun(client.WithReason(ctx, c.Reason), r)
	switch {
	case err != nil:
		return err
	case a.JSON:
		return cmp.Or(a.WriteJSON(done), leftOut(done.Damaged))
	}
	tellClaimed(a, done)
	tellLeftOut(a, done.Damaged)
	if done.Uncertain != "" {
		a.Out.Hanging(a.Stdout, "", term.Escape(fmt.Sprintf("a person must decide before it goes on: %s; look with: ckptsidecar operations %s --run %s",
			done.Uncertain, done.Agent, done.Run)))
	}
	return leftOut(done.Damaged)
}

func tellClaimed(a *cli.App, done *fleet.Claimed) {
	a.Out.Hanging(a.Stdout, a.Out.Green("claimed")+"  ", term.Escape(fmt.Sprintf("run %s of %s (%s) is on this host now, with %s; host %s has lost it",
		done.Run, done.Agent, done.Owner, term.Count(done.Checkpoints, "checkpoint"), done.From)))
}

// claimedAll is the JSON output of a claim of all runs of a host.
type claimedAll struct {
	Claimed []*fleet.Claimed `json:"claimed"`
	Refused []refusedClaim   `json:"refused"`
}

type refusedClaim struct {
	Owner  string `json:"owner"`
	Agent  string `json:"agent"`
	Run    string `json:"run"`
	Reason string `json:"reason"`
}

// claimAll claims every run of a host.
func (c *claimCmd) claimAll(ctx context.Context, a *cli.App) error {
	o := client.Operator{Client: a.Client()}
	runs, err := c.runsOf(ctx, o)
	if err != nil {
		return err
	}
	all := claimedAll{Claimed: []*fleet.Claimed{}, Refused: []refusedClaim{}}
	var damaged []fleet.DamagedCheckpoint
	for _, r := range runs {
		done, err := o.ClaimRun(ctx, fleet.ClaimRequest{Agent: r.Agent, Run: r.Run, Owner: r.Owner, Host: r.DB, Force: c.Force})
		if err != nil {
			all.Refused = append(all.Refused, refusedClaim{r.Owner, r.Agent, r.Run, err.Error()})
			continue
		}
		all.Claimed, damaged = append(all.Claimed, done), append(damaged, done.Damaged...)
		if !a.JSON {
			tellClaimed(a, done)
		}
	}
	if a.JSON {
		err = a.WriteJSON(all)
	} else {
		all.tell(a, damaged)
	}
	switch {
	case err != nil:
		return err
	case len(all.Refused) > 0:
		return &cli.ExitError{Code: cli.ExitConflict, Message: term.Count(len(all.Refused), "run") + " did not come"}
	case len(runs) == 0:
		return ckpt.Errorf(ckpt.CodeNotFound, "the engine has no run of another host named %s: `ckptsidecar fleet hosts` lists them", c.Host)
	}
	return leftOut(damaged)
}

func (all *claimedAll) tell(a *cli.App, damaged []fleet.DamagedCheckpoint) {
	tellLeftOut(a, damaged)
	for _, r := range all.Refused {
		a.Out.Hanging(a.Stdout, a.Out.Red("refused")+"  ", term.Escape(fmt.Sprintf("run %s of %s (%s): %s", r.Run, r.Agent, r.Owner, r.Reason)))
	}
	for _, done := range all.Claimed {
		if done.Uncertain != "" {
			a.Out.Hanging(a.Stdout, "", term.Escape(fmt.Sprintf("a person must decide about run %s of %s before it goes on: ckptsidecar operations %s --run %s",
				done.Run, done.Agent, done.Agent, done.Run)))
		}
	}
}

// runsOf lists the runs of the host that this host does not have.
func (c *claimCmd) runsOf(ctx context.Context, o client.Operator) (runs []fleet.RunShown, err error) {
	q := fleet.RunsQuery{Host: c.Host, Limit: 100}
	for {
		page, err := o.FleetRuns(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, r := range page.Runs {
			if !r.This {
				runs = append(runs, r)
			}
		}
		if page.Next == nil {
			return runs, nil
		}
		q.Before = *page.Next
	}
}
