package driftcmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/view"
)

// Command is the command drift with its subcommands.
type Command struct {
	Show     driftShowCmd     `cmd:"" default:"withargs" help:"Show a run's drift, its findings, and what it did last."`
	Rules    driftRulesCmd    `cmd:"" help:"List the rules, with the thresholds that hold by default or for an agent."`
	Findings driftFindingsCmd `cmd:"" help:"List the findings of all runs, newest first."`
	Evaluate driftEvaluateCmd `cmd:"" help:"Show which recorded runs would be warned, with the present or other thresholds."`
	Explain  driftExplainCmd  `cmd:"" help:"Explain a finding: what it means, its evidence, and what to do."`
	Dismiss  driftDismissCmd  `cmd:"" help:"Dismiss findings. Checkpoints that were suspect because of them are clean again."`
}

type driftShowCmd struct {
	Agent  string `arg:"" help:"The agent's name."`
	InRun  string `name:"run" help:"The run. Default: under exec its run, else main, else the one that changed last." placeholder:"NAME"`
	Closed bool   `help:"Also findings that are closed."`
	cli.Paged
}

func (c *driftShowCmd) Run(ctx context.Context, a *cli.App) error {
	ref, err := a.RefToRead(ctx, c.Agent, c.InRun, c.Paged.Check())
	if err != nil {
		return err
	}
	var all *ckpt.DriftReport
	next, err := c.Paged.Read(func(before string, limit int) (ckpt.Ref, error) {
		page, err := a.Client().Drift(ctx, ckpt.DriftFilter{
			Agent: ref.Agent, Run: ref.Run, All: c.Closed, Line: all == nil, Before: before, Limit: limit,
		})
		if err != nil {
			return "", err
		}
		if all == nil {
			all = page
		} else {
			all.Findings = append(all.Findings, page.Findings...)
		}
		return page.Next, nil
	})
	if err != nil {
		return err
	}
	if all.Next = next; a.JSON {
		return a.WriteJSON(all)
	}
	driftText(ctx, a, all)
	c.Paged.More(a, all.Next)
	return nil
}

func driftText(ctx context.Context, a *cli.App, r *ckpt.DriftReport) {
	term.Printf(a.Stdout, "%s  %s\n", a.Out.Bold("run "+r.Run+" of "+r.Agent), view.SeverityText(r.Verdict, a.Out))
	p := &term.Pairs{}
	for _, row := range [][2]string{{"advice", string(r.Advice)}, {"go back to", goBackText(ctx, a, r)}, {"recovery", string(r.Recovery)}} {
		if row[1] != "" {
			p.Add(row[0], row[1])
		}
	}
	if len(r.Unseen) > 0 {
		p.Add("not seen", "these rules lack data, because it was not sent: "+strings.Join(r.Unseen, ", "))
	}
	if r.Calibration != nil {
		p.Add("calibration", CalibrationText(r.Calibration))
	}
	p.Write(a.Stdout, a.Out)
	if len(r.Findings) == 0 {
		term.Println(a.Stdout, "no findings")
	} else {
		term.Println(a.Stdout)
		findingTable(r.Findings, a.Out).Write(a.Stdout, a.Out)
	}
	if len(r.Secrets) > 0 {
		term.Println(a.Stdout, "\nWhat looks like a secret is no drift:")
		findingTable(r.Secrets, a.Out).Write(a.Stdout, a.Out)
	}
	if len(r.Timeline) > 0 {
		term.Println(a.Stdout)
		TimelineText(a.Stdout, a.Out, r)
	}
}

func goBackText(ctx context.Context, a *cli.App, r *ckpt.DriftReport) string {
	switch {
	case len(r.Unseen) > 0: // an observed run has no checkpoints
		return ""
	case r.Clean != "":
		return fmt.Sprintf("%s: stop the agent, and then: %s", r.Clean, view.CommandOf(ctx, a, ckpt.RunRef{Agent: r.Agent, Run: r.Run}))
	case r.Verdict == ckpt.SeverityCritical && slices.ContainsFunc(r.Findings, view.CoversCheckpoints):
		return "none: no clean checkpoint is left, so a resume asks an operator"
	}
	return ""
}

func findingTable(list []ckpt.Finding, s *term.Style) *term.Table {
	t := term.NewTable("WHEN", "RULE", "SEVERITY", "?NOW", "&WHAT", "#ID")
	for i := range list {
		f := &list[i]
		t.Add(s.Time(f.At), f.Rule, view.SeverityText(f.Severity, s), nowText(f), view.FirstLine(f.Message), f.ID)
	}
	return t
}

// nowText says whether a finding is open, or what closed it.
func nowText(f *ckpt.Finding) string {
	switch {
	case f.Closed == "":
		return "open"
	case !f.DismissedAt.IsZero():
		return "dismissed"
	}
	return string(f.Closed)
}

type driftDismissCmd struct {
	IDs    []string `arg:"" name:"id" help:"The findings' ids, or names of agents with --open."`
	Open   bool     `help:"Dismiss all open findings of these agents' runs."`
	InRun  string   `name:"run" help:"With --open: the run. Default: main." placeholder:"NAME"`
	Reason string   `help:"Why, for the audit log." placeholder:"TEXT"`
}

func (c *driftDismissCmd) Run(ctx context.Context, a *cli.App) error {
	ids, err := c.findings(ctx, a)
	if err != nil {
		return err
	}
	done := []*ckpt.DismissedFinding{}
	for _, id := range ids {
		f, _, err := a.Client().Dismiss(ctx, ckpt.DismissRequest{ID: id, Reason: c.Reason})
		if err != nil {
			return err
		}
		done = append(done, f)
		if !a.JSON {
			term.Printf(a.Stdout, "%s  %s of run %s of %s: dismissed", f.ID, f.Rule, f.Run, f.Agent)
			if n := len(f.Cleaned); n > 0 {
				term.Printf(a.Stdout, ", %s clean again", term.Count(n, "checkpoint"))
			}
			term.Println(a.Stdout)
		}
	}
	if a.JSON {
		return a.WriteJSON(map[string]any{"findings": done})
	}
	if len(done) == 0 {
		a.Tell("nothing is open")
	}
	return nil
}

// findings returns the ids of the named findings, or of all open findings of the named agents.
func (c *driftDismissCmd) findings(ctx context.Context, a *cli.App) ([]string, error) {
	if err := cli.Checked(ckpt.CheckReason(c.Reason)); err != nil {
		return nil, err
	}
	if !c.Open {
		ids := make([]string, len(c.IDs))
		for i, named := range c.IDs {
			var err error
			if ids[i], err = a.FindingID(ctx, named); err != nil {
				return nil, err
			}
		}
		return ids, nil
	}
	var ids []string
	for _, agent := range c.IDs {
		ref := a.Ref(agent, c.InRun, nil)
		if err := cli.Checked(ref.Check()); err != nil {
			return nil, err
		}
		every := cli.Paged{All: true}
		_, err := every.Read(func(before string, limit int) (ckpt.Ref, error) {
			page, err := a.Client().Drift(ctx, ckpt.DriftFilter{Agent: ref.Agent, Run: ref.Run, Before: before, Limit: limit})
			if err != nil {
				return "", err
			}
			for i := range page.Findings {
				ids = append(ids, page.Findings[i].ID)
			}
			return page.Next, nil
		})
		if err != nil {
			return nil, err
		}
	}
	return ids, nil
}
