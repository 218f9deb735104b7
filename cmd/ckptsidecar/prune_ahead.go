package main

import (
	"context"
	"fmt"

	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// ahead shows what is removed next, and what is kept and why.
func (c *pruneCmd) ahead(ctx context.Context, a *app) error {
	v, err := client.Operator{Client: a.Client()}.Forecast(ctx, survey.ForecastQuery{Agent: c.Agent})
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(v)
	}
	t := term.NewTable("AGENT", "RUN", ">SEQ", "KIND", ">?SIZE", "&WHEN", "&WHY", "#ID")
	t.Typed(c.Agent != "", "AGENT")
	first := 0
	for i := range v.Going {
		g := &v.Going[i]
		when := map[string]string{survey.GoesNow: "now", survey.GoesNextSave: "with the next save", survey.GoesByBudget: "at its budget"}[g.When]
		switch {
		case g.When == survey.GoesByBudget:
			first++
		case g.When == survey.GoesByAge && g.Goes.After(v.At.Time):
			when = term.Moment(g.Goes)
		case g.When == survey.GoesByAge: // its time is over, and the clock is not trusted yet
			when = "after a pause"
		}
		t.Add(g.Agent, g.Run, fmt.Sprint(g.Seq), kindText(g.Kind, a.Out), term.Bytes(g.StoredSize), when, g.Reason, g.Checkpoint)
	}
	if len(v.Going) > 0 {
		t.Write(a.Stdout, a.Out)
	}
	a.Tell("%s will be removed, as of now", term.Count(len(v.Going)-first, "checkpoint"))
	if first > 0 {
		a.Tell("%s will be removed first if an agent reaches its budget", term.Count(first, "checkpoint"))
	}
	if v.MoreGoing > 0 {
		a.Tell("not listed: %s", term.Count(v.MoreGoing, "checkpoint"))
	}
	if v.Guarded {
		a.Tell(agePaused)
	}
	for _, k := range v.Keeping {
		a.Tell("%s, %s: %s", term.Count(k.Checkpoints, "checkpoint"), term.Bytes(k.Bytes), k.Rule)
	}
	return nil
}
