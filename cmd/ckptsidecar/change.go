package main

import (
	"context"
	"maps"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

type tagCmd struct {
	Checkpoint string   `arg:"" names:"checkpoint" help:"The checkpoint: ${checkpoint}."`
	Labels     []string `arg:"" help:"k=v sets a label, k- takes it away."`
	cli.ReasonFlag
}

func (c *tagCmd) Run(ctx context.Context, a *app) error {
	ctx = client.WithReason(ctx, c.Reason)
	if err := cli.CheckCheckpointName(c.Checkpoint); err != nil {
		return err
	}
	if _, err := relabel(nil, c.Labels); err != nil {
		return err
	}
	before, err := a.Checkpoint(ctx, c.Checkpoint)
	if err != nil {
		return err
	}
	after, err := relabel(before.Labels, c.Labels)
	if err != nil {
		return err
	}
	return a.patch(ctx, before.ID, ckpt.CheckpointPatch{Labels: &after})
}

// relabel applies changes to labels: k=v sets a label, k- removes it.
func relabel(old ckpt.Labels, changes []string) (ckpt.Labels, error) {
	labels := maps.Clone(old)
	if labels == nil {
		labels = ckpt.Labels{}
	}
	for _, change := range changes {
		if key, value, found := strings.Cut(change, "="); found {
			labels[key] = value
		} else if key, found := strings.CutSuffix(change, "-"); found && key != "" {
			delete(labels, key)
		} else {
			return nil, cli.Usagef("%q does not change a label: write k=v to set a label, or k- to remove it", change)
		}
	}
	return labels, cli.Checked(ckpt.CheckLabels(labels))
}

type pinCmd struct {
	Checkpoint string `arg:"" names:"checkpoint" help:"The checkpoint: ${checkpoint}."`
	cli.ReasonFlag
}

func (c *pinCmd) Run(ctx context.Context, a *app) error {
	return a.setPinned(client.WithReason(ctx, c.Reason), c.Checkpoint, true)
}

type unpinCmd struct {
	Checkpoint string `arg:"" names:"checkpoint" help:"The checkpoint: ${checkpoint}."`
	cli.ReasonFlag
}

func (c *unpinCmd) Run(ctx context.Context, a *app) error {
	return a.setPinned(client.WithReason(ctx, c.Reason), c.Checkpoint, false)
}

func (a *app) setPinned(ctx context.Context, name string, pinned bool) error {
	id, err := a.CheckpointID(ctx, name)
	if err != nil {
		return err
	}
	return a.patch(ctx, id, ckpt.CheckpointPatch{Pinned: &pinned})
}

func (a *app) patch(ctx context.Context, id string, p ckpt.CheckpointPatch) error {
	got, err := a.Client().Patch(ctx, id, p)
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(got)
	case p.Labels != nil:
		term.Printf(a.Stdout, "%s  labels: %s\n", got.ID, cli.OrNone(labelText(got.Labels)))
	case got.Pinned:
		term.Printf(a.Stdout, "%s  is pinned: retention never removes it\n", got.ID)
	default: // the policy applies as soon as a checkpoint is unpinned
		said := "is not pinned: retention may remove it"
		if _, err := a.Client().Checkpoint(ctx, got.ID, false); ckpt.CodeOf(err) == ckpt.CodeNotFound {
			said = "was unpinned, and retention removed it"
		}
		term.Printf(a.Stdout, "%s  %s\n", got.ID, said)
	}
	return nil
}

type deleteCmd struct {
	Checkpoint string `arg:"" names:"checkpoint" help:"The checkpoint: ${checkpoint}."`
	cli.ReasonFlag
}

func (c *deleteCmd) Run(ctx context.Context, a *app) error {
	id, err := a.CheckpointID(ctx, c.Checkpoint)
	if err != nil {
		return err
	}
	gone, err := a.Client().Delete(client.WithReason(ctx, c.Reason), id)
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(gone)
	}
	term.Printf(a.Stdout, "%s  deleted: number %d of run %s of %s\n", gone.Checkpoint, gone.Seq, gone.Run, gone.Agent)
	return nil
}
