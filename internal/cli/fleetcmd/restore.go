package fleetcmd

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/host"
)

type restoreCmd struct {
	Host        string `arg:"" help:"The lost host, by its name or its database."`
	engineFlags `embed:""`
	DB          string `name:"db" help:"The database to restore into. Default: $$CKPTSIDECAR_DB, then the configured one." placeholder:"FILE"`
	Force       bool   `help:"Restore even if the host was seen in the last two minutes, because you know that it is lost."`
}

// Help returns the additional text of `fleet restore --help`.
func (c *restoreCmd) Help() string {
	return `The daemon here must be stopped (ckptsidecar service stop), and its database must have no agents.
The engine refuses from then on what the lost host ships. That host's daemon says so in status if it comes back.
The runs come back as they were shipped last. A run that was running then waits for a person:
nobody knows what it did after that. Decide with ckptsidecar operations and ckptsidecar operation resolve.
The exit code is 5 if something was left out: what is damaged in the engine, and runs of which a key is missing here.
Such a run stays in the engine: add the key to fleet.key_file, and bring the run with ckptsidecar fleet claim.`
}

func (c *restoreCmd) Run(ctx context.Context, a *cli.App) error {
	url, err := c.find(a)
	if err != nil {
		return err
	}
	config, err := (&cli.SettingFlags{System: c.System, DB: c.DB}).Settings(a)
	if err != nil {
		return err
	}
	done, err := host.Restore(ctx, url, c.Host, c.Force, config.Fleet(a.Env, a.Version))
	if err != nil {
		return cli.StopFirst(err, config.Database)
	}
	if a.JSON {
		err = a.WriteJSON(done)
	} else {
		c.tell(a, done)
	}
	return cmp.Or(err, leftOut(done.Damaged))
}

func (c *restoreCmd) tell(a *cli.App, done *fleet.Restored) {
	a.Out.Hanging(a.Stdout, a.Out.Green("restored")+"  ", term.Escape(fmt.Sprintf("%s has %d agents, %d runs and %d checkpoints of host %s now",
		done.Database, done.Agents, done.Runs, done.Checkpoints, done.Host)))
	tellLeftOut(a, done.Damaged)
	if len(done.Uncertain) == 0 {
		return
	}
	a.Out.Hanging(a.Stdout, "", "A person must decide about these runs before they go on, see `ckptsidecar operations`:")
	t := term.NewTable("OWNER", "AGENT", "RUN")
	for _, u := range done.Uncertain {
		t.Add(u.Owner, u.Agent, u.Run)
	}
	t.Write(a.Stdout, a.Out)
}

// tellLeftOut prints what a claim or a restore has left out, if anything.
func tellLeftOut(a *cli.App, list []fleet.DamagedCheckpoint) {
	if len(list) == 0 {
		return
	}
	a.Out.Hanging(a.Stdout, "", "This was left out, because the engine's copy of it is damaged or does not open:")
	t := term.NewTable("OWNER", "AGENT", "RUN", "KIND", ">SEQ", "~REASON", "#ID")
	for _, d := range list {
		t.Add(d.Owner, d.Agent, d.Run, d.Kind, fmt.Sprint(d.Seq), d.Reason, d.ID)
	}
	t.Write(a.Stdout, a.Out)
}

// leftOut returns an error that says how much a claim or a restore has left out, nil for nothing.
func leftOut(list []fleet.DamagedCheckpoint) error {
	if len(list) == 0 {
		return nil
	}
	what := "checkpoint"
	if slices.ContainsFunc(list, func(d fleet.DamagedCheckpoint) bool { return d.Kind != "checkpoint" }) {
		what = "row"
	}
	return &cli.ExitError{Code: cli.ExitDamaged, Message: term.Count(len(list), what) + " left out: the engine's copy is damaged or does not open"}
}
