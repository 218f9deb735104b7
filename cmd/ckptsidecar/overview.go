package main

import (
	"context"
	"fmt"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/view"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

type overviewCmd struct {
	Span  string `help:"How far to look back for runs that have ended: a length of time such as 30m or 7d." default:"2h" placeholder:"TIME"`
	Limit int    `help:"How many runs at most." default:"50" placeholder:"N"`
}

func (c *overviewCmd) Run(ctx context.Context, a *app) error {
	span, err := ckpt.ParseDuration(c.Span)
	q := survey.OverviewQuery{Span: span, Limit: c.Limit}
	if err := cli.Checked(err, q.Check()); err != nil {
		return err
	}
	v, _, err := client.Operator{Client: a.Client()}.Overview(ctx, q)
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(v)
	}
	needsText(a, v)
	if len(v.Runs) == 0 {
		term.Println(a.Stdout, "no run is active, and none has ended in the last "+c.Span)
		return nil
	}
	t := term.NewTable("AGENT", "RUN", "STATUS", "CHANGED", ">?WORKED", ">STEPS", ">?COST", ">FINDINGS", "~?GOAL")
	for i := range v.Runs {
		r := &v.Runs[i]
		worked := r.WorkedMS
		if !r.SegmentAt.IsZero() {
			worked += max(0, v.At.Sub(r.SegmentAt.Time).Milliseconds())
		}
		t.Add(r.Agent, r.Run, view.RunStatus(r.Status, a.Out), a.Out.Time(r.UpdatedAt), view.WorkedText(worked), fmt.Sprint(r.Steps),
			fmt.Sprintf("$%.2f", r.CostUSD), fmt.Sprint(r.Findings), view.FirstLine(r.Goal))
	}
	t.Write(a.Stdout, a.Out)
	if v.MoreRuns > 0 {
		a.Tell("%s more: ask with a larger --limit", term.Count(v.MoreRuns, "run"))
	}
	return nil
}

// needsText prints the tasks that wait for a person.
func needsText(a *app, v *survey.Overview) {
	if len(v.Needs) == 0 {
		term.Println(a.Stdout, "nothing waits for you")
		return
	}
	for i := range v.Needs {
		n := &v.Needs[i]
		where := ""
		if n.Agent != "" {
			where = n.Agent + "/" + n.Run
		}
		a.Out.Hanging(a.Stdout, "", fmt.Sprintf("%s  %s  %s", a.Out.Yellow(term.Escape(needText(n))), term.Escape(where),
			term.Ago(v.At.Time, n.Since.Time)))
		if n.Why != "" {
			term.Paragraph(a.Stdout, a.Out, 4, n.Why)
		}
		if n.WaitingPID != 0 {
			term.Paragraph(a.Stdout, a.Out, 4, "It "+ckpt.WaitsText(n.WaitingPID)+".")
		} else if n.What == survey.NeedLostRun {
			term.Paragraph(a.Stdout, a.Out, 4, "To go on: "+view.GoOn(n.Agent, n.Run, n.Command))
		}
	}
	if v.MoreNeeds > 0 {
		term.Printf(a.Stdout, "and %d more\n", v.MoreNeeds)
	}
	term.Println(a.Stdout)
}

func needText(n *survey.Need) string {
	switch n.What {
	case survey.NeedOperation:
		return fmt.Sprintf("Did %q take effect?", n.Text)
	case survey.NeedFindings:
		return term.Count(n.Count, "more run") + " with critical findings"
	case survey.NeedLostRun:
		if n.MayGoOn {
			return "The run may go on; nobody runs it"
		}
		return "The run lost its owner"
	case survey.NeedLostRuns:
		return term.Count(n.Count, "more run") + " that nobody runs"
	case survey.NeedSecrets:
		return term.Count(n.Count, "more run") + " with what looks like secrets"
	}
	return n.Text
}
