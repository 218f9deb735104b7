package main

import (
	"context"
	"fmt"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

type agentsCmd struct {
	States bool `help:"Also sum the full sizes of the states. This reads every checkpoint."`
}

func (c *agentsCmd) Run(ctx context.Context, a *app) error {
	page, err := allAgents(ctx, a, c.States)
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(page)
	case len(page.Agents) == 0:
		a.Tell("no agent has saved anything yet")
		return nil
	}
	t := term.NewTable("AGENT", ">RUNS", ">CHECKPOINTS", ">STORED", ">FILES", "UPDATED", "?OWNER", ">?STATES")
	for _, ag := range page.Agents {
		t.Add(ag.Agent, fmt.Sprint(ag.Runs), fmt.Sprint(ag.Checkpoints), term.Bytes(ag.StoredBytes),
			filesText(ag.FilesBytes), a.Out.Time(ag.UpdatedAt), ag.Owner, statesText(ag.StateBytes))
	}
	t.Write(a.Stdout, a.Out)
	return nil
}

// statesText returns the size of an agent's states; "" if nobody has asked for it.
func statesText(bytes *int64) string {
	if bytes == nil {
		return ""
	}
	return term.Bytes(*bytes)
}

// filesText returns the size of files; "" if there are none.
func filesText(bytes int64) string {
	if bytes == 0 {
		return ""
	}
	return term.Bytes(bytes)
}

// andFiles returns the size of the files beside the states; "" if there are none.
func andFiles(bytes int64) string {
	if bytes == 0 {
		return ""
	}
	return ", " + term.Bytes(bytes) + " of files"
}

func allAgents(ctx context.Context, a *app, states bool) (*ckpt.AgentPage, error) {
	var all *ckpt.AgentPage
	every := cli.Paged{All: true}
	_, err := every.Read(func(before string, limit int) (ckpt.Ref, error) {
		page, err := a.Client().Agents(ctx, ckpt.AgentFilter{Before: before, Limit: limit, States: states})
		if err != nil {
			return "", err
		}
		if all != nil {
			page.Agents = append(all.Agents, page.Agents...)
		}
		all = page
		return page.Next, nil
	})
	return all, err
}

type eraseCmd struct {
	Agent string `arg:"" help:"The agent's name."`
	Yes   bool   `help:"Do not ask."`
}

// Help returns the text that `erase --help` adds.
func (c *eraseCmd) Help() string {
	return "Backups that were made before keep the agent until they go; remove them by hand where that is too late.\n" +
		"On a host of a fleet the answer names the hosts that have not erased their copies yet. They do it when they\n" +
		"next speak to the engine."
}

func (c *eraseCmd) Run(ctx context.Context, a *app) error {
	if err := cli.Checked(ckpt.CheckAgentName(c.Agent)); err != nil {
		return err
	}
	if !c.Yes && !a.Interactive {
		return cli.Usagef("erase asks for confirmation, and standard input is not a terminal: add --yes")
	}
	a.nameUncertain(ctx, c.Agent)
	if !c.Yes {
		if err := a.confirm(ctx, c.Agent); err != nil {
			return err
		}
	}
	gone, err := a.Client().Erase(ctx, c.Agent)
	if err != nil {
		return err
	}
	return erasedText(a, gone)
}

// nameUncertain names the operations of an agent of which nobody knows whether they took effect, before they are erased: the
// audit log cannot name them afterwards. If the daemon does not answer, the erasure says so.
func (a *app) nameUncertain(ctx context.Context, agent string) {
	page, err := a.Client().Runs(ctx, ckpt.RunFilter{Agent: agent, Lives: true, Limit: 1})
	if err != nil || len(page.Runs) == 0 {
		return
	}
	v, _, err := client.Operator{Client: a.Client()}.Overview(ctx, survey.OverviewQuery{Limit: 1})
	if err != nil {
		return
	}
	for i := range v.Needs {
		if n := &v.Needs[i]; n.What == survey.NeedOperation && n.Agent == agent && n.Owner == page.Runs[0].Owner {
			a.Tell("nobody knows whether operation %s (%s) of run %s, attempt %d, took effect; to record it first: %s",
				n.Operation, n.Text, n.Run, n.Attempt, ckpt.ResolveCommand(n.Agent, n.Run, n.Operation))
		}
	}
}

func erasedText(a *app, gone *ckpt.Erased) error {
	if a.JSON {
		return a.WriteJSON(gone)
	}
	term.Printf(a.Stdout, "%s  erased: %s, %s, %s%s\n", gone.Agent,
		term.Count(gone.Runs, "run"), term.Count(gone.Checkpoints, "checkpoint"), term.Bytes(gone.StoredBytes), andFiles(gone.FilesBytes))
	if f := gone.Fleet; f != nil && len(f.Waiting) > 0 {
		term.Printf(a.Stdout, "not erased yet on these hosts of the fleet: %s\nckptsidecar fleet status says when they have\n",
			strings.Join(f.Waiting, ", "))
	}
	return nil
}

// confirm asks the user to type the agent's name, because a yes is typed too easily.
func (a *app) confirm(ctx context.Context, agent string) error {
	term.Printf(a.Stderr, "This erases all checkpoints of %s, for good. Type its name to go on: ", a.Err.Bold(agent))
	typed, err := cli.Stoppable(ctx, func() (typed string, _ error) {
		_, _ = fmt.Fscanln(a.Stdin, &typed) // an empty input is not its name either
		return typed, nil
	})
	if err != nil {
		return err
	}
	if typed != agent {
		return &cli.ExitError{Code: cli.ExitFailed, Message: "the name does not match: nothing was erased"}
	}
	return nil
}

type pruneCmd struct {
	Agent  string `arg:"" optional:"" help:"The agent's name. Default: every agent."`
	DryRun bool   `help:"Only say what would go, and why."`
	cli.ReasonFlag
	Ahead bool `help:"Remove nothing. Show what will be removed with the next save, by age and when, or over budget, and why the rest is kept."`
}

func (c *pruneCmd) Run(ctx context.Context, a *app) error {
	if err := cli.Checked(cli.Given(c.Agent, ckpt.CheckAgentName)); err != nil {
		return err
	}
	if c.Ahead {
		return c.ahead(ctx, a)
	}
	report, _, err := a.Client().Prune(client.WithReason(ctx, c.Reason), ckpt.PruneRequest{Agent: c.Agent, DryRun: c.DryRun}, "")
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(report)
	}
	pruneText(a, report)
	return nil
}

// agePaused says that nothing is removed by age now.
const agePaused = "retention by age is paused: the daemon has just started, or the clock jumped"

func pruneText(a *app, report *ckpt.PruneReport) {
	if len(report.Removed) > 0 {
		t := term.NewTable("AGENT", "RUN", ">SEQ", "KIND", ">?SIZE", "&WHY", "#ID")
		for _, r := range report.Removed {
			t.Add(r.Agent, r.Run, fmt.Sprint(r.Seq), kindText(r.Kind, a.Out), term.Bytes(r.StoredSize), r.Reason, r.Checkpoint)
		}
		t.Write(a.Stdout, a.Out)
	}
	verb := "went"
	if report.DryRun {
		verb = "would go"
	}
	a.Tell("%s %s", term.Count(len(report.Removed), "checkpoint"), verb)
	if report.Guarded {
		a.Tell(agePaused)
	}
}
