package fleetcmd

import (
	"context"
	"strings"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/host"
)

// Command is the command fleet.
type Command struct {
	Check   checkCmd   `cmd:"" help:"Check whether an engine can be used."`
	Migrate migrateCmd `cmd:"" help:"Create the fleet's tables in the engine, or update them."`
	Status  statusCmd  `cmd:"" help:"Show how shipping to the engine goes."`
	Hosts   hostsCmd   `cmd:"" help:"List the hosts of the fleet."`
	Runs    runsCmd    `cmd:"" help:"List runs of all hosts, the last changed first."`
	Claim   claimCmd   `cmd:"" help:"Claim a run of a lost host, or all of its runs, and bring them to this host."`
	Release releaseCmd `cmd:"" help:"Let another host claim a run of this host at once."`
	Drain   drainCmd   `cmd:"" help:"Let go of all runs of this host before maintenance."`
	Forget  forgetCmd  `cmd:"" help:"Forget a host that is gone for good: no erasure waits for it any more."`
	Verify  verifyCmd  `cmd:"" help:"Check everything that the engine holds: audit logs, claims, states."`
	Keys    keysCmd    `cmd:"" help:"Make and list the keys that seal what is shipped."`
}

type checkCmd struct {
	engineFlags   `embed:""`
	AssumeDurable bool `help:"Treat the engine as replicated although it does not report it. You take the responsibility."`
	Accept        bool `help:"Let hosts claim by themselves again after the engine went back."`
}

// Help returns the additional text of `fleet check --help`.
func (c *checkCmd) Help() string {
	return "Without --accept the command changes nothing. If a standby that was behind was promoted, or an older copy of the engine was started, " +
		"the hosts notice, ship again what the engine lacks, and claim no run by themselves. Find out which copy was started, and wait for the hosts that " +
		"the command lists. Then add --accept. If each host has a role of its own, give the URL of the role that has migrated."
}

// checkedShape is the JSON output of the check.
type checkedShape struct {
	*fleet.Report
	Good    bool   `json:"good"`
	Durable bool   `json:"durable"`
	Why     string `json:"why,omitempty"`
}

func (c *checkCmd) Run(ctx context.Context, a *cli.App) error {
	url, err := c.find(a)
	if err != nil {
		return err
	}
	r, err := host.Check(ctx, url)
	if err != nil {
		return err
	}
	durable, why := r.Durable(c.AssumeDurable)
	if a.JSON {
		if err := a.WriteJSON(checkedShape{r, r.Good(), durable, why}); err != nil {
			return err
		}
	} else {
		reportText(a, r, durable, why)
	}
	if !r.Good() {
		return &cli.ExitError{Code: cli.ExitFailed, Message: "the engine will not do yet: " + strings.Join(r.Problems, "; ")}
	}
	if c.Accept {
		if err := host.AcceptBack(ctx, url); err != nil {
			return err
		}
		a.Tell("hosts claim by themselves again")
	}
	return nil
}

func reportText(a *cli.App, r *fleet.Report, durable bool, why string) {
	term.Printf(a.Stdout, "%s  %s\n", a.Out.Bold("engine"), r.Engine)
	term.Printf(a.Stdout, "profile %s, isolation %s, clock %+.3f s, tables of version %d\n", r.Profile, r.Isolation, r.ClockAhead, r.Schema)
	term.Printf(a.Stdout, "replication: %s\n", r.How)
	if len(r.Rights) > 0 {
		term.Printf(a.Stdout, "missing rights: %s\n", strings.Join(r.Rights, ", "))
	}
	for _, note := range r.Notes {
		term.Printf(a.Stdout, "note: %s\n", note)
	}
	for _, problem := range r.Problems {
		term.Printf(a.Stdout, "%s %s\n", a.Out.Red("problem:"), problem)
	}
	if !r.Good() {
		return
	}
	term.Printf(a.Stdout, "%s to ship to\n", a.Out.Green("good"))
	switch {
	case !durable:
		term.Printf(a.Stdout, "not good for durability: fleet: %s\n", why)
	case why != "":
		term.Printf(a.Stdout, "good for durability: fleet on your word: %s\n", why)
	}
}

type migrateCmd struct {
	engineFlags `embed:""`
}

func (c *migrateCmd) Run(ctx context.Context, a *cli.App) error {
	url, err := c.find(a)
	if err != nil {
		return err
	}
	from, to, err := host.Migrate(ctx, url)
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(map[string]int{"from": from, "to": to})
	case from == to:
		term.Printf(a.Stdout, "the fleet's tables have version %d already\n", to)
	default:
		term.Printf(a.Stdout, "%s  the fleet's tables have version %d now\n", a.Out.Green("migrated"), to)
	}
	return nil
}
