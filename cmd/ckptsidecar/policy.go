package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

type policyCmd struct {
	Get policyGetCmd `cmd:"" help:"Show an agent's policy."`
	Set policySetCmd `cmd:"" help:"Change some of an agent's policy, or replace it with --file."`
}

type policyGetCmd struct {
	Agent string `arg:"" help:"The agent's name."`
}

func (c *policyGetCmd) Run(ctx context.Context, a *app) error {
	if err := cli.Checked(ckpt.CheckAgentName(c.Agent)); err != nil {
		return err
	}
	p, err := a.Client().Policy(ctx, c.Agent)
	if err != nil {
		return err
	}
	return a.writePolicy(p)
}

type policySetCmd struct {
	Agent    string   `arg:"" help:"The agent's name."`
	Settings []string `arg:"" optional:"" help:"key=value, for example routine_keep=10 detectors.repeat.tier=off budget.steps=500 ignore_tools=sleep,wait schema=@FILE; key= for the default."`
	File     string   `aliases:"from" help:"Replace the whole policy with this JSON file; - for standard input. What it leaves out has the default." placeholder:"FILE"`
}

func (c *policySetCmd) Run(ctx context.Context, a *app) error {
	if err := cli.Checked(ckpt.CheckAgentName(c.Agent)); err != nil {
		return err
	}
	if (c.File == "") == (len(c.Settings) == 0) {
		return cli.Usagef("say what to set: key=value …, or --file FILE")
	}
	p, err := c.policy(ctx, a)
	if err != nil {
		return err
	}
	now, err := a.Client().SetPolicy(ctx, c.Agent, p)
	if err != nil {
		return err
	}
	return a.writePolicy(now)
}

func (c *policySetCmd) policy(ctx context.Context, a *app) (ckpt.Policy, error) {
	if c.File != "" {
		text, err := a.Read(ctx, c.File)
		if err != nil {
			return ckpt.Policy{}, err
		}
		p, err := wellformed.ParsePolicy(text)
		return p, cli.Checked(err)
	}
	changes, err := c.changes(ctx, a)
	if err != nil {
		return ckpt.Policy{}, err
	}
	if _, err := changePolicy(ckpt.DefaultPolicy(), changes); err != nil {
		return ckpt.Policy{}, err
	}
	old, err := a.Client().Policy(ctx, c.Agent)
	if ckpt.CodeOf(err) == ckpt.CodeNotFound { // an agent may have a policy before its first save
		return changePolicy(ckpt.DefaultPolicy(), changes)
	}
	if err != nil {
		return ckpt.Policy{}, err
	}
	return changePolicy(*old, changes)
}

// changes are the settings as they were typed, with what stands in files.
func (c *policySetCmd) changes(ctx context.Context, a *app) ([]string, error) {
	list := slices.Clone(c.Settings)
	for i, change := range list {
		key, file, found := strings.Cut(change, "=@")
		if !found || strings.Contains(key, "=") {
			continue
		}
		text, err := a.Read(ctx, file)
		if err != nil {
			return nil, err
		}
		list[i] = key + "=" + string(text)
	}
	return list, nil
}

func (a *app) writePolicy(p *ckpt.Policy) error {
	if a.JSON {
		return term.WriteJSON(a.Data(), p)
	}
	return writeFields(a.Stdout, a.Out, p)
}

// writeFields shows a shape of the API by its JSON names, in its order.
func writeFields(w io.Writer, s *term.Style, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(strings.NewReader(string(text)))
	if _, err := dec.Token(); err != nil {
		return err
	}
	p := &term.Pairs{}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return err
		}
		p.Add(fmt.Sprint(name), strings.Trim(string(value), `"`))
	}
	p.Write(w, s)
	return nil
}
