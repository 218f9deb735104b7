package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/uuid"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/view"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

type runForkCmd struct {
	Agent string   `arg:"" help:"The agent's name."`
	InRun string   `name:"run" help:"The run to fork. Default: main, or under exec its run." placeholder:"NAME"`
	From  string   `help:"Where to begin: ${checkpoint}, or its number in the run. Default: where the run would go on." placeholder:"CHECKPOINT"`
	Set   []string `help:"Change a place of the state: /path=value, as JSON or text. May be repeated." placeholder:"/PATH=VALUE" sep:"none"`
	Edit  string   `help:"Take the new state from this file; - for standard input." placeholder:"FILE"`
	As    string   `help:"The name of the new run. Default: one that is made up." placeholder:"NAME"`
	To    string   `name:"agent" help:"The new run belongs to this agent. Default: the same." placeholder:"NAME"`
}

// Help returns the text that `run fork --help` adds.
func (c *runForkCmd) Help() string {
	return "The first checkpoint of the new run is the edited state, and its parent is the one that it began with, " +
		"so that tree shows it as a fork. " +
		"The old run stays what it is. In another agent it has no parent; its metadata say where it came from."
}

func (c *runForkCmd) Run(ctx context.Context, a *app) error {
	to := cmp.Or(c.To, c.Agent)
	err := cli.Checked(ckpt.CheckAgentName(c.Agent), ckpt.CheckAgentName(to),
		cli.Given(c.From, cli.CheckCheckpointNameOf), cli.Given(c.As, ckpt.CheckRunName))
	if err == nil && len(c.Set) > 0 && c.Edit != "" {
		err = cli.Usagef("--set changes the old state, and --edit replaces it: give one of them")
	}
	if err != nil {
		return err
	}
	from, err := c.checkpoint(ctx, a)
	if err != nil {
		return err
	}
	state, err := c.state(ctx, a, from)
	if err != nil {
		return err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	name := cmp.Or(c.As, fmt.Sprintf("%s-fork-%s", ckpt.BaseRun(from.Run), id.String()[30:]))
	fork := map[string]any{"checkpoint": from.ID, "agent": from.Agent, "run": from.Run, "seq": from.Seq}
	metadata, err := json.Marshal(map[string]any{"fork": fork})
	if err != nil {
		return err
	}
	r := &ckpt.SaveRequest{ID: id.String(), Agent: to, Run: name, Kind: ckpt.KindRoutine, Metadata: metadata,
		Program: from.Program, ContentType: from.ContentType, State: state, ForkFrom: ckpt.Ref(from.ID)}
	saved, err := a.Client().Save(ctx, r)
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(saved)
	}
	a.Tell("%s run %s of %s, from number %d of run %s", a.Err.Green("forked:"), a.Err.Bold(name), to, from.Seq, from.Run)
	a.Tell("to go on: %s", view.GoOn(to, name, commandOf(ctx, a, from)))
	term.Println(a.Stdout, name)
	return nil
}

func (c *runForkCmd) checkpoint(ctx context.Context, a *app) (*ckpt.Checkpoint, error) {
	if c.From == "" {
		return a.Client().Latest(ctx, ckpt.CheckpointFilter{Agent: c.Agent, Run: a.InRun(c.Agent, c.InRun)}, true)
	}
	id, err := a.CheckpointIDOf(ctx, c.Agent, a.InRun(c.Agent, c.InRun), c.From)
	if err != nil {
		return nil, err
	}
	from, err := a.Client().Checkpoint(ctx, id, true)
	if err == nil && from.Agent != c.Agent {
		err = ckpt.Errorf(ckpt.CodeConflict, "checkpoint %s belongs to agent %s, not to %s", from.ID, from.Agent, c.Agent)
	}
	return from, err
}

// state returns the state of the new run.
func (c *runForkCmd) state(ctx context.Context, a *app, from *ckpt.Checkpoint) ([]byte, error) {
	switch {
	case c.Edit == "-":
		return cli.Stoppable(ctx, func() ([]byte, error) { return io.ReadAll(a.Stdin) })
	case c.Edit != "":
		return os.ReadFile(c.Edit)
	case len(c.Set) == 0:
		return from.State, nil
	case !ckpt.IsJSON(from.ContentType):
		return nil, cli.Usagef("the state is %s, and --set works only on JSON: replace the state with --edit", from.ContentType)
	}
	state := from.State
	for _, change := range c.Set {
		var err error
		if state, err = setIn(state, change); err != nil {
			return nil, err
		}
	}
	return state, nil
}

// setIn changes one place of a JSON state. It replaces an existing value. It adds a new member of
// an object, or a new value at the end of an array ("/list/-").
func setIn(state []byte, change string) ([]byte, error) {
	path, text, found := strings.Cut(change, "=")
	if !found || path != "" && path[0] != '/' {
		return nil, cli.Usagef("%q is not a change: write /path=value", change)
	}
	value := json.RawMessage(text)
	if jsontext.Check(value) != nil {
		quoted, err := json.Marshal(text)
		if err != nil {
			return nil, err
		}
		value = quoted
	}
	var failed error
	for _, op := range []string{"replace", "add"} {
		patch, err := json.Marshal([]map[string]any{{"op": op, "path": path, "value": value}})
		if err != nil {
			return nil, err
		}
		decoded, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			return nil, cli.Usagef("%q is not a change: %v", change, err)
		}
		var changed []byte
		if changed, failed = decoded.Apply(state); failed == nil {
			return changed, nil
		}
	}
	return nil, cli.Usagef("the state has no place %s: %v", path, failed)
}

// commandOf is how the agent of a checkpoint's run is started, nil if nobody said.
func commandOf(ctx context.Context, a *app, from *ckpt.Checkpoint) *ckpt.Command {
	run, err := a.Client().Run(ctx, ckpt.RunRef{Agent: from.Agent, Run: from.Run})
	if err != nil {
		return nil
	}
	return run.Command
}
