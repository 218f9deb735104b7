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
	t := term.NewTable("AGENT", "RUN", ">SEQ", "KIND", ">SIZE", "WHEN", "~WHY", "#ID")
	for i := range v.Going {
		g := &v.Going[i]
		when := map[string]string{survey.GoesNow: "now", survey.GoesNextSave: "with the next save", survey.GoesByBudget: "first, over budget"}[g.When]
		if g.When == survey.GoesByAge {
			when = term.Moment(g.Goes)
		}
		t.Add(g.Agent, g.Run, fmt.Sprint(g.Seq), kindText(g.Kind, a.Out), term.Bytes(g.StoredSize), when, g.Reason, g.Checkpoint)
	}
	if len(v.Going) > 0 {
		t.Write(a.Stdout, a.Out)
	}
	a.Tell("%s will be removed, as of now", term.Count(v.MoreGoing+int64(len(v.Going)), "checkpoint"))
	for _, k := range v.Keeping {
		a.Tell("%s, %s: %s", term.Count(k.Checkpoints, "checkpoint"), term.Bytes(k.Bytes), k.Rule)
	}
	return nil
}
