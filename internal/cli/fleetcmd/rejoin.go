package fleetcmd

import (
	"context"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/host"
)

type rejoinCmd struct {
	engineFlags `embed:""`
	DB          string `name:"db" help:"The database. Default: $$CKPTSIDECAR_DB, then the configured one." placeholder:"FILE"`
	Force       bool   `help:"Join anew even if the engine has no other past of this database, because another machine has a copy of it."`
}

// Help returns the additional text of `fleet rejoin --help`.
func (c *rejoinCmd) Help() string {
	return `For a host whose state is split: an older copy of its database was put back, or two machines
have copies of one database. The daemon must be stopped. The database gets another id in the
fleet, and ships again. Runs that the engine has under the former id cannot be written here any
more. What this host has of them beyond the engine is a strand: see ckptsidecar fleet strands.
Of two machines with one database, run it on the copy, not on the original. If each host has a
role of its own, give the URL of the role that has migrated: see docs/FLEET.md.`
}

func (c *rejoinCmd) Run(ctx context.Context, a *cli.App) error {
	url, err := c.find(a)
	if err != nil {
		return err
	}
	config, err := (&cli.SettingFlags{System: c.System, DB: c.DB}).Settings(a)
	if err != nil {
		return err
	}
	done, err := host.Rejoin(ctx, url, c.Force, config.Fleet(a.Env, a.Version))
	switch {
	case err != nil:
		return cli.StopFirst(err, config.Database)
	case a.JSON:
		return a.WriteJSON(done)
	}
	term.Printf(a.Stdout, "%s  this host is database %s in the fleet now; it was %s\n", a.Out.Green("joined anew"), done.To, done.From)
	term.Printf(a.Stdout, "what it did after row %d of its audit log on runs of that id are strands: see ckptsidecar fleet strands\n", done.Common)
	return nil
}
