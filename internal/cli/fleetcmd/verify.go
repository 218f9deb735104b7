package fleetcmd

import (
	"context"
	"fmt"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/host"
)

type verifyCmd struct {
	engineFlags `embed:""`
}

// Help returns the additional text of `fleet verify --help`.
func (*verifyCmd) Help() string {
	return `It checks that no row of an audit log is missing up to the host's mark, that claims fit
the audit logs that they name, and each state and document against its hash or its
seal. The audit log of this host is compared with the database of this host row by row.
What is sealed with a key that this host does not have is counted and not opened.

It only reads, and asks the engine itself. The exit code is 5 if something is damaged.`
}

func (c *verifyCmd) Run(ctx context.Context, a *cli.App) error {
	url, err := c.find(a)
	if err != nil {
		return err
	}
	config, err := (&cli.SettingFlags{System: c.System}).Settings(a)
	if err != nil {
		return err
	}
	p := a.Progress("verifying", "runs")
	v, err := host.Verify(ctx, url, config.Fleet(a.Env, a.Version), p.Step)
	p.Done()
	if err != nil {
		return err
	}
	if a.JSON {
		err = a.WriteJSON(v)
	} else {
		verifiedText(a, v)
	}
	if n := len(v.Problems); err == nil && n > 0 {
		return &cli.ExitError{
			Code:    cli.ExitDamaged,
			Message: fmt.Sprintf("the engine has %s; docs/FLEET.md says what to do", term.Count(n, "problem")),
		}
	}
	return err
}

func verifiedText(a *cli.App, v *fleet.Verified) {
	for i := range v.Problems {
		a.Out.Hanging(a.Stdout, a.Out.Red("damaged")+"  ", term.Escape(v.Problems[i].String()))
	}
	if len(v.Problems) == 0 {
		term.Printf(a.Stdout, "%s  nothing is damaged\n", a.Out.Green("ok"))
	}
	p := &term.Pairs{}
	p.Add("hosts", fmt.Sprint(v.Hosts))
	p.Add("audit logs", fmt.Sprintf("%s, %d compared with this host's", term.Count(v.AuditRows, "row"), v.Compared))
	if v.Archived > 0 {
		p.Add("not in the engine", term.Count(v.Archived, "row")+" of audit logs, archived on their hosts before they were shipped")
	}
	p.Add("claims", fmt.Sprint(v.Claims))
	p.Add("runs", fmt.Sprintf("%d, with %s and %s", v.Runs, term.Count(v.Checkpoints, "checkpoint"), term.Count(v.Rows, "other row")))
	if v.Unopened > 0 {
		p.Add("not opened", fmt.Sprintf("%s, sealed with keys that this host does not have", term.Count(v.Unopened, "row")))
	}
	p.Write(a.Stdout, a.Out)
}
