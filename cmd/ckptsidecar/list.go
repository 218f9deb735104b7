package main

import (
	"context"
	"errors"
	"fmt"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/view"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

type listCmd struct {
	Agent   string            `arg:"" help:"The agent's name."`
	InRun   string            `name:"run" help:"Only this run. Default: every run." placeholder:"NAME"`
	Kind    string            `help:"Only this kind: routine, pre_operation or recovery." placeholder:"KIND"`
	Label   map[string]string `mapsep:"none" help:"Only with this label; may be repeated." placeholder:"K=V"`
	Suspect *bool             `negatable:"" help:"Only suspect ones, or with --no-suspect only clean ones."`
	cli.Paged
	cli.Following
	Tree bool `help:"The same as the command tree. Goes with --run only."`
}

func (c *listCmd) Run(ctx context.Context, a *app) error {
	if err := c.check(); err != nil {
		return err
	}
	if c.Follow {
		return c.follow(ctx, a)
	}
	c.All = c.All || c.Tree
	page, err := c.pages(ctx, a)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.WriteJSON(page)
	}
	if len(page.Checkpoints) == 0 {
		a.Tell("no checkpoint of %s matches", c.Agent)
		return nil
	}
	if c.Tree {
		newHistory(page.Checkpoints).write(a.Stdout, a.Out)
		return nil
	}
	checkpointTable(page.Checkpoints, a.Out).Write(a.Stdout, a.Out)
	c.Paged.More(a.App, page.Next)
	return nil
}

func (c *listCmd) check() error {
	if err := errors.Join(c.Paged.Check(), c.Following.Check(&c.Paged)); err != nil {
		return err
	}
	if c.Tree && c.Follow {
		return cli.Usagef("--tree and --follow exclude each other: give one of them")
	}
	if c.Tree && (c.Kind != "" || len(c.Label) > 0 || c.Suspect != nil || c.Before != "") {
		return cli.Usagef("--tree shows all of an agent or of one run: leave the other filters out")
	}
	return cli.Checked(
		ckpt.CheckAgentName(c.Agent),
		cli.Given(c.InRun, ckpt.CheckLife),
		cli.Given(c.Kind, func(k string) error { return ckpt.CheckKind(ckpt.Kind(k)) }),
		ckpt.CheckLabels(c.Label),
	)
}

// follow prints checkpoints as they are saved, and again when they are pinned, labeled or found
// suspect.
func (c *listCmd) follow(ctx context.Context, a *app) error {
	return cli.Follow(ctx, a.App, cli.Watched[ckpt.Checkpoint]{
		Concerns: func(change *survey.Change) bool {
			return change.Agent == c.Agent && (c.InRun == "" || change.Run == c.InRun) &&
				(change.What == survey.ChangedCheckpoint || change.What == survey.ChangedFinding)
		},
		Read: func(before string) ([]ckpt.Checkpoint, ckpt.Ref, error) {
			page, err := c.page(ctx, a, before, c.Limit)
			switch {
			case ckpt.CodeOf(err) == ckpt.CodeNotFound: // the agent's first save creates it
				return nil, "", nil
			case err != nil:
				return nil, "", err
			}
			return page.Checkpoints, page.Next, nil
		},
		Version: func(c *ckpt.Checkpoint) string {
			return fmt.Sprint(c.ID, c.Pinned, c.Suspect, c.Labels)
		},
		Table: func(list []ckpt.Checkpoint) *term.Table { return checkpointTable(list, a.Out) },
	})
}

// pages reads one page, or with --all every page.
func (c *listCmd) pages(ctx context.Context, a *app) (*ckpt.CheckpointPage, error) {
	var all *ckpt.CheckpointPage
	_, err := c.Paged.Read(func(before string, limit int) (ckpt.Ref, error) {
		page, err := c.page(ctx, a, before, limit)
		if err != nil {
			return "", err
		}
		if all != nil {
			page.Checkpoints = append(all.Checkpoints, page.Checkpoints...)
		}
		all = page
		return page.Next, nil
	})
	return all, err
}

func (c *listCmd) page(ctx context.Context, a *app, before string, limit int) (*ckpt.CheckpointPage, error) {
	return a.Client().Checkpoints(ctx, ckpt.CheckpointFilter{
		Agent: c.Agent, Run: c.InRun, Kind: ckpt.Kind(c.Kind), Labels: c.Label, Suspect: c.Suspect, Before: before, Limit: limit,
	})
}

func checkpointTable(list []ckpt.Checkpoint, s *term.Style) *term.Table {
	t := term.NewTable("RUN", ">SEQ", "KIND", "CREATED", ">SIZE", "", "~LABELS", "#ID")
	for i := range list {
		c := &list[i]
		t.Add(c.Run, fmt.Sprint(c.Seq), kindText(c.Kind, s), s.Time(c.CreatedAt), term.Bytes(c.Size), view.Marks(c, s),
			labelText(c.Labels), c.ID)
	}
	return t
}
