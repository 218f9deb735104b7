package main

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

type changesCmd struct {
	Limit int `short:"n" help:"End after so many." placeholder:"N"`
}

// Run prints a line for each change until it is stopped.
func (c *changesCmd) Run(ctx context.Context, a *app) error {
	shown := 0
	err := client.Operator{Client: a.Client()}.Changes(ctx, func(change survey.Change) error {
		if a.JSON {
			line, err := json.Marshal(change)
			if err != nil {
				return err
			}
			term.Println(a.Stdout, string(line))
		} else {
			term.Println(a.Stdout, changeText(&change))
		}
		if shown++; c.Limit > 0 && shown >= c.Limit {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) || ctx.Err() != nil { // Ctrl-C is the normal end of following
		return nil
	}
	return err
}

func changeText(c *survey.Change) string {
	where := c.Agent
	if c.Run != "" {
		where += "/" + c.Run
	}
	switch {
	case c.What == survey.ChangedBegin:
		return "watching"
	case c.What == survey.ChangedAll:
		return "too many changes to list: read everything again"
	case where == "":
		where = c.Owner
	}
	return c.What + "  " + where
}
