package driftcmd

import (
	"context"
	"fmt"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/view"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

type driftFindingsCmd struct {
	Agent    string `help:"Only findings of this agent." placeholder:"AGENT"`
	Rule     string `help:"Only findings of this rule." placeholder:"RULE"`
	Severity string `help:"Only of this severity: info, warn or critical." placeholder:"SEVERITY"`
	Since    string `help:"Only findings of the last 2h, 7d or the like." placeholder:"TIME"`
	Closed   bool   `help:"Also findings that are closed."`
	cli.Paged
	cli.Following
}

// Run lists the findings of all runs, newest first.
func (c *driftFindingsCmd) Run(ctx context.Context, a *cli.App) error {
	f := survey.FindingsQuery{Agent: c.Agent, Rule: c.Rule, Severity: ckpt.Severity(c.Severity), Closed: c.Closed}
	var err error
	if c.Since != "" {
		var ago ckpt.Duration
		ago, err = ckpt.ParseDuration(c.Since)
		f.Since = ckpt.At(time.Now().Add(-time.Duration(ago)))
	}
	if err := cli.Checked(err, c.Paged.Check(), c.Following.Check(&c.Paged), f.Check()); err != nil {
		return err
	}
	if c.Follow {
		return c.follow(ctx, a, f)
	}
	all := &survey.Findings{Findings: []ckpt.Finding{}}
	all.Next, err = c.Paged.Read(func(before string, limit int) (ckpt.Ref, error) {
		f.Before, f.Limit = before, limit
		page, err := client.Operator{Client: a.Client()}.Findings(ctx, f)
		if err != nil {
			return "", err
		}
		all.Findings = append(all.Findings, page.Findings...)
		return page.Next, nil
	})
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(all)
	case len(all.Findings) == 0:
		a.Tell("no finding matches")
		return nil
	}
	c.table(all.Findings, a.Out).Write(a.Stdout, a.Out)
	c.Paged.More(a, all.Next)
	return nil
}

func (c *driftFindingsCmd) table(findings []ckpt.Finding, s *term.Style) *term.Table {
	t := term.NewTable("AT", "AGENT", "RUN", "SEVERITY", "RULE", "?CLOSED", "&MESSAGE", "#ID")
	t.Typed(c.Agent != "", "AGENT")
	for i := range findings {
		f := &findings[i]
		t.Add(s.Time(f.At), f.Agent, f.Run, string(f.Severity), f.Rule, string(f.Closed), view.FirstLine(f.Message), f.ID)
	}
	return t
}

// follow prints findings when they are made, and again when they get worse or are closed.
func (c *driftFindingsCmd) follow(ctx context.Context, a *cli.App, f survey.FindingsQuery) error {
	f.Limit = c.Limit
	return cli.Follow(ctx, a, cli.Watched[ckpt.Finding]{
		Concerns: func(change *survey.Change) bool {
			return (c.Agent == "" || change.Agent == c.Agent) && change.What == survey.ChangedFinding
		},
		Read: func(before string) ([]ckpt.Finding, ckpt.Ref, error) {
			f.Before = before
			page, err := client.Operator{Client: a.Client()}.Findings(ctx, f)
			if err != nil {
				return nil, "", err
			}
			return page.Findings, page.Next, nil
		},
		Version: func(f *ckpt.Finding) string { return fmt.Sprint(f.ID, f.Severity, f.Closed) },
		Table:   func(findings []ckpt.Finding) *term.Table { return c.table(findings, a.Out) },
	})
}
