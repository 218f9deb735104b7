package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
)

type policyCmd struct {
	Get policyGetCmd `cmd:"" help:"Show an agent's policy."`
	Set policySetCmd `cmd:"" help:"Change some of an agent's policy, or replace it with --file."`
}

type policyGetCmd struct {
	Agent string `arg:"" help:"The agent's name."`
}

func (c *policyGetCmd) Run(ctx context.Context, a *app) error {
	if err := checked(ckpt.CheckAgentName(c.Agent)); err != nil {
		return err
	}
	p, err := a.client().Policy(ctx, c.Agent)
	if err != nil {
		return err
	}
	return a.writePolicy(p)
}

type policySetCmd struct {
	Agent    string   `arg:"" help:"The agent's name."`
	Settings []string `arg:"" optional:"" help:"key=value, for example routine_keep=10 recovery_keep=14d."`
	File     string   `help:"Replace the whole policy with this JSON file; - for standard input. What it leaves out has the default." placeholder:"FILE"`
}

func (c *policySetCmd) Run(ctx context.Context, a *app) error {
	if err := checked(ckpt.CheckAgentName(c.Agent)); err != nil {
		return err
	}
	if (c.File == "") == (len(c.Settings) == 0) {
		return usagef("say what to set: key=value …, or --file FILE")
	}
	p, err := c.policy(ctx, a)
	if err != nil {
		return err
	}
	now, err := a.client().SetPolicy(ctx, c.Agent, p)
	if err != nil {
		return err
	}
	return a.writePolicy(now)
}

func (c *policySetCmd) policy(ctx context.Context, a *app) (ckpt.Policy, error) {
	if c.File != "" {
		text, err := a.read(ctx, c.File)
		if err != nil {
			return ckpt.Policy{}, err
		}
		p, err := ckpt.ParsePolicy(text)
		return p, checked(err)
	}
	if _, err := changePolicy(ckpt.DefaultPolicy(), c.Settings); err != nil {
		return ckpt.Policy{}, err
	}
	old, err := a.client().Policy(ctx, c.Agent)
	if ckpt.CodeOf(err) == ckpt.CodeNotFound { // an agent may have a policy before its first save
		return changePolicy(ckpt.DefaultPolicy(), c.Settings)
	}
	if err != nil {
		return ckpt.Policy{}, err
	}
	return changePolicy(*old, c.Settings)
}

// changePolicy goes through the policy's JSON form, so that its names and
// rules are those of the API, whatever settings there will be.
func changePolicy(old ckpt.Policy, changes []string) (ckpt.Policy, error) {
	text, err := json.Marshal(old)
	if err != nil {
		return ckpt.Policy{}, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return ckpt.Policy{}, err
	}
	for _, change := range changes {
		key, value, found := strings.Cut(change, "=")
		if !found {
			return ckpt.Policy{}, usagef("%q sets nothing: write key=value", change)
		}
		if _, known := fields[key]; !known {
			return ckpt.Policy{}, usagef("a policy has no %q: it has %s", key, strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		}
		fields[key] = policyValue(value)
	}
	if text, err = json.Marshal(fields); err != nil {
		return ckpt.Policy{}, err
	}
	p, err := ckpt.ParsePolicy(text)
	return p, checked(err)
}

// policyValue is what a person typed, as JSON: a number or JSON as it is, a
// size as its bytes, anything else a string.
func policyValue(typed string) json.RawMessage {
	if ckpt.CheckJSON([]byte(typed)) == nil {
		return json.RawMessage(typed)
	}
	if size, err := daemon.ParseSize(typed); err == nil && strings.HasSuffix(typed, "B") {
		return json.RawMessage(fmt.Sprint(int64(size)))
	}
	quoted, _ := json.Marshal(typed)
	return quoted
}

func (a *app) writePolicy(p *ckpt.Policy) error {
	if a.cli.JSON {
		return writeJSON(a.stdout, p)
	}
	return writeFields(a.stdout, a.out, p)
}

// writeFields shows a shape of the API by its JSON names, in its order.
func writeFields(w io.Writer, s *style, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(strings.NewReader(string(text)))
	if _, err := dec.Token(); err != nil {
		return err
	}
	p := &pairs{}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return err
		}
		p.add(fmt.Sprint(name), strings.Trim(string(value), `"`))
	}
	p.write(w, s)
	return nil
}
