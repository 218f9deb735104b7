package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/view"
)

type showCmd struct {
	Checkpoint string `arg:"" names:"checkpoint" help:"The checkpoint: ${checkpoint}."`
	State      bool   `help:"Also show the state."`
}

func (c *showCmd) Run(ctx context.Context, a *app) error {
	id, err := a.CheckpointID(ctx, c.Checkpoint)
	if err != nil {
		return err
	}
	got, err := a.Client().Checkpoint(ctx, id, c.State)
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.writeCheckpoint(got)
	}
	checkpointPairs(got, a.Out).Write(a.Stdout, a.Out)
	if c.State {
		term.Block(a.Stdout, "\n"+stateText(got))
	}
	return nil
}

func checkpointPairs(c *ckpt.Checkpoint, s *term.Style) *term.Pairs {
	p := &term.Pairs{}
	p.Add("id", s.Bold(c.ID))
	p.Add("name", cli.CheckpointName(c))
	p.Add("agent", c.Agent)
	p.Add("owner", c.Owner)
	p.Add("run", fmt.Sprintf("%s, number %d", c.Run, c.Seq))
	p.Add("kind", kindText(c.Kind, s))
	p.Add("created", term.Moment(c.CreatedAt))
	p.Add("size", fmt.Sprintf("%s (%d bytes), stored as %s", term.Bytes(c.Size), c.Size, term.Bytes(c.StoredSize)))
	p.Add("sha256", c.SHA256)
	p.Add("content type", c.ContentType)
	for _, more := range [][2]string{
		{"parent", string(c.Parent)}, {"step", string(c.Step)}, {"operation", string(c.Operation)},
		{"labels", labelText(c.Labels)}, {"metadata", metadataText(c.Metadata)}, {"marks", view.Marks(c, s)},
	} {
		if more[1] != "" {
			p.Add(more[0], more[1])
		}
	}
	if c.Program != nil {
		p.Add("program", fmt.Sprintf("%d of %d bytes have run", c.Program.Executed, len(c.Program.Source)))
	}
	return p
}

func metadataText(m json.RawMessage) string {
	if text := string(m); text != "{}" && text != "null" {
		return text
	}
	return ""
}

// stateText returns the state for people: indented JSON, other text unchanged, and only the size of
// any other data.
func stateText(c *ckpt.Checkpoint) string {
	var b bytes.Buffer
	switch {
	case ckpt.IsJSON(c.ContentType) && json.Indent(&b, bytes.TrimSpace(c.State), "", "  ") == nil:
		return b.String()
	case isText(c.State):
		return strings.TrimSuffix(string(c.State), "\n")
	}
	return fmt.Sprintf("(%s that are not text: `ckptsidecar restore %s --checkpoint %s -o FILE` writes them)", term.Bytes(c.Size), c.Agent, c.ID)
}

func (a *app) writeCheckpoint(c *ckpt.Checkpoint) error {
	return a.WriteJSON(view.CheckpointShapeOf(c))
}
