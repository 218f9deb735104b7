package fleetcmd

import (
	"fmt"
	"slices"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// tellLeftOut prints what claims have left out, if anything.
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

// leftOut returns an error that says how much claims have left out, nil for nothing.
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
