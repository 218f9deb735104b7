package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/view"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

type saveCmd struct {
	Agent       string            `arg:"" help:"The agent's name."`
	File        string            `arg:"" optional:"" default:"-" help:"The file with the state; - or nothing for standard input."`
	InRun       string            `name:"run" help:"The run. Default: main, or under exec its run." placeholder:"NAME"`
	Kind        string            `default:"routine" help:"Why it is taken: routine, pre_operation or recovery. Default: ${default}."`
	Label       map[string]string `mapsep:"none" help:"A label for finding it again; may be repeated." placeholder:"K=V"`
	ContentType string            `help:"The type of a state that is not JSON, such as text/plain. Default: application/json." placeholder:"TYPE"`
	AllowEmpty  bool              `help:"Save an empty state too. Without this flag, empty input is an error."`
	Metadata    string            `help:"A JSON object to keep beside the state." placeholder:"JSON"`
	ID          string            `name:"id" help:"Its id, a UUID of version 7. No id is saved twice, so a script may try again." placeholder:"UUID"`
	Parent      string            `help:"The checkpoint that this state came from. Default: the run's newest." placeholder:"ID"`
	Epoch       *int64            `help:"The run's epoch that you hold; a newer owner's run then refuses the save." placeholder:"N"`
}

// Run prints only the id on standard output, so that id=$(ckptsidecar save …) works. It prints the
// rest on standard error.
func (c *saveCmd) Run(ctx context.Context, a *app) error {
	if err := c.check(); err != nil {
		return err
	}
	state, err := c.read(ctx, a)
	if err != nil {
		return err
	}
	request, ref := c.request(state), a.Ref(c.Agent, c.InRun, c.Epoch)
	request.Run, request.Epoch = ref.Run, ref.Epoch
	saved, err := a.Client().Save(ctx, request)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.WriteJSON(saved)
	}
	term.Println(a.Stdout, saved.ID)
	a.Tell("%s", savedText(saved, a.Err))
	view.TellDrift(ctx, a.App, saved.Drift, ref)
	return nil
}

// check refuses wrong arguments before anything is read or sent.
func (c *saveCmd) check() error {
	r := c.request(nil)
	r.ContentType = "" // there is no state yet
	return cli.Checked(wellformed.Save(r))
}

// read returns the state. An empty one has no type unless the caller names one.
func (c *saveCmd) read(ctx context.Context, a *app) ([]byte, error) {
	state, err := a.readState(ctx, c.File, cmp.Or(c.ContentType, ckpt.ContentTypeJSON), c.AllowEmpty)
	if err == nil && len(state) == 0 {
		c.ContentType = cmp.Or(c.ContentType, "application/octet-stream")
	}
	return state, err
}

func (c *saveCmd) request(state []byte) *ckpt.SaveRequest {
	r := &ckpt.SaveRequest{
		ID: c.ID, Agent: c.Agent, Run: c.InRun, Kind: ckpt.Kind(c.Kind), Epoch: c.Epoch,
		Parent: ckpt.Ref(c.Parent), Labels: c.Label, Metadata: json.RawMessage(c.Metadata),
		ContentType: cmp.Or(c.ContentType, ckpt.ContentTypeJSON), State: state,
	}
	return r
}

// readState reads a state from a file, or from standard input for "-". An empty one is refused unless it is allowed: a command
// before it in the pipe may have failed, and an empty state would push out a good one. A state of a JSON type must be JSON.
func (a *app) readState(ctx context.Context, name, contentType string, allowEmpty bool) ([]byte, error) {
	state, err := a.Read(ctx, name)
	if err != nil || len(state) == 0 && allowEmpty {
		return nil, err
	}
	from := name
	if name == "-" {
		from = "standard input"
	}
	if len(state) == 0 {
		return nil, cli.Usagef("%s is empty, so nothing was saved; save has --allow-empty for an empty state", from)
	}
	if err := jsontext.Check(state); err != nil && ckpt.IsJSON(contentType) {
		return nil, cli.Usagef("%s is not JSON: %v; save has --content-type for a state of another type", from, err)
	}
	return state, nil
}

func savedText(s *ckpt.Saved, st *term.Style) string {
	text := fmt.Sprintf("%s number %d of run %s, %s, %s", st.Green("saved:"), s.Seq, s.Run, s.Kind, term.Bytes(s.Size))
	if s.Replayed {
		text += ", the same as before"
	}
	for i, id := range s.Pruned {
		if i == 0 {
			text += "; pruned"
		}
		text += " " + id
	}
	return text
}
