package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/view"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

type auditListCmd struct {
	Agent   string `help:"Only rows about this agent." placeholder:"AGENT"`
	InRun   string `name:"run" help:"Only rows about runs of this name, or about one life: main~1." placeholder:"NAME"`
	Action  string `help:"Only this action, such as restore; decisions: every action but saves, steps, events and reads." placeholder:"ACTION"`
	Who     string `help:"Only acts of this identity, such as uid:1000, or daemon." placeholder:"WHO"`
	Outcome string `help:"Only this outcome: done, an error code, or refused for all but done." placeholder:"OUTCOME"`
	Since   string `help:"Only rows since then: a time, or how long ago, such as 2h." placeholder:"TIME"`
	cli.Paged
}

func (c *auditListCmd) Run(ctx context.Context, a *app) error {
	since, err := instant("--since", c.Since, time.Now())
	f := ckpt.AuditFilter{Agent: c.Agent, Run: c.InRun, Action: c.Action, Who: c.Who, Outcome: c.Outcome, Since: since, Newest: true}
	if err := cli.Checked(err, c.Paged.Check(), f.Check()); err != nil {
		return err
	}
	all := &ckpt.AuditPage{Audit: []ckpt.AuditRow{}}
	next, err := c.Paged.Read(func(before string, limit int) (ckpt.Ref, error) {
		f.Limit = limit
		if before != "" {
			if f.Before, err = strconv.ParseInt(before, 10, 64); err != nil {
				return "", cli.Usagef("--before takes the number that the previous page printed")
			}
		}
		page, err := a.Client().Audit(ctx, f)
		if err != nil {
			return "", err
		}
		all.Audit, all.Next = append(all.Audit, page.Audit...), page.Next
		if page.Next == nil {
			return "", nil
		}
		return ckpt.Ref(strconv.FormatInt(*page.Next, 10)), nil
	})
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(all)
	case len(all.Audit) == 0:
		a.Tell("no row matches")
		return nil
	}
	t := term.NewTable(">N", "AT", "WHO", "ACTION", "AGENT", "RUN", "OUTCOME", "~REASON")
	for i := range all.Audit {
		row := &all.Audit[i]
		t.Add(fmt.Sprint(row.N), a.Out.Time(row.At), row.Who, row.Action, string(row.Agent), string(row.Run), row.Outcome, string(row.Reason))
	}
	t.Write(a.Stdout, a.Out)
	c.Paged.More(a.App, next)
	return nil
}

type auditCheckCmd struct{}

// Run fails with exit code 5 if the log is not as it was written.
func (c *auditCheckCmd) Run(ctx context.Context, a *app) error {
	v, err := client.Operator{Client: a.Client()}.VerifyChain(ctx)
	if err != nil {
		return err
	}
	if a.JSON {
		err = a.WriteJSON(v)
	} else {
		for _, problem := range v.Problems {
			term.Println(a.Stdout, problem)
		}
		if v.OK {
			term.Printf(a.Stdout, "the chain holds: %s, head %s\n", term.Count(v.Rows, "row"), view.HashHead(v.Head))
		}
	}
	if err == nil && !v.OK {
		return &cli.ExitError{Code: cli.ExitDamaged}
	}
	return err
}
