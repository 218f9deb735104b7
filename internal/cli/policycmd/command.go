package policycmd

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// Command is the command policy with its subcommands.
type Command struct {
	Get policyGetCmd `cmd:"" help:"Show each setting of an agent, and where its value is from: default, daemon, owner or agent."`
	Set policySetCmd `cmd:"" help:"Change values of a policy, or replace it with --file: an agent's, or with '*' that of all your agents."`
}

type policyGetCmd struct {
	Agent string `arg:"" help:"The agent's name, or '*' for your agents that have set nothing themselves."`
	Own   bool   `help:"Show only the values that were set for this agent itself, or with '*' for all of your agents, as JSON."`
}

func (c *policyGetCmd) Run(ctx context.Context, a *cli.App) error {
	if err := checkPolicyName(c.Agent); err != nil {
		return err
	}
	layers, err := a.Client().PolicyLayers(ctx, c.Agent)
	switch {
	case err != nil:
		return err
	case c.Own:
		return a.WriteJSON(ownLayer(c.Agent, layers))
	}
	return writeLayers(a, layers)
}

// checkPolicyName accepts the name of an agent, or the name for all agents.
func checkPolicyName(name string) error {
	if name == ckpt.AllAgents {
		return nil
	}
	return cli.Checked(ckpt.CheckAgentName(name))
}

// ownLayer returns what was set for an agent itself, or with '*' for all agents of an
// owner.
func ownLayer(name string, layers *ckpt.PolicyLayers) ckpt.JSON {
	own := layers.Agent
	if name == ckpt.AllAgents {
		own = layers.Owner
	}
	if own == nil {
		return ckpt.JSON("{}")
	}
	return own
}

// writeLayers shows each value with its source. Parts of detectors and budget that have
// been set have their own lines.
func writeLayers(a *cli.App, layers *ckpt.PolicyLayers) error {
	if a.JSON {
		return a.WriteJSON(layers)
	}
	members, err := membersOf(layers.Policy)
	if err != nil {
		return err
	}
	t := term.NewTable("SETTING", "&VALUE", "FROM")
	for _, member := range members {
		parts := partsOf(member, layers.From)
		if len(parts) == 0 {
			parts = []field{member}
		}
		for _, part := range parts {
			t.Add(part.name, inWords(part.name, strings.Trim(string(part.value), `"`)), string(layers.From[part.name]))
		}
	}
	t.Write(a.Stdout, a.Out)
	return nil
}

// partsOf returns the parts of a member that have been set.
func partsOf(member field, from map[string]ckpt.PolicySource) (parts []field) {
	var inner map[string]json.RawMessage
	if json.Unmarshal(member.value, &inner) != nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(inner)) {
		if from[member.name+"."+name] != "" {
			parts = append(parts, field{member.name + "." + name, inner[name]})
		}
	}
	return parts
}

type policySetCmd struct {
	Agent    string   `arg:"" help:"The agent's name, or '*' for all of your agents. What an agent sets itself goes over it."`
	Settings []string `arg:"" optional:"" help:"${policy_settings}"`
	Yes      bool     `help:"Change the policy although this removes checkpoints at once, without asking."`
	File     string   `aliases:"from" help:"Replace the whole policy with this JSON file, or -; what it leaves out is unset." placeholder:"FILE"`
	cli.ReasonFlag
	changed []string // the values that change, old and new
}

func (c *policySetCmd) Run(ctx context.Context, a *cli.App) error {
	ctx = client.WithReason(ctx, c.Reason)
	if err := checkPolicyName(c.Agent); err != nil {
		return err
	}
	if (c.File == "") == (len(c.Settings) == 0) {
		return cli.Usagef("nothing to set: give key=value …, or --file FILE")
	}
	own, changes, err := c.given(ctx, a)
	if err != nil {
		return err
	}
	if c.Agent != ckpt.AllAgents {
		now, err := c.setAgents(ctx, a, own, changes)
		if err != nil {
			return err
		}
		if a.JSON {
			return a.WriteJSON(now)
		}
		c.tellChanged(a)
		return nil
	}
	layers, err := a.Client().PolicyLayers(ctx, ckpt.AllAgents)
	if err != nil {
		return err
	}
	if own == nil {
		if own, err = changePolicy(ownLayer(ckpt.AllAgents, layers), changes); err != nil {
			return err
		}
	}
	if err := c.mayChange(ctx, a, layers, own); err != nil {
		return err
	}
	set, err := a.Client().SetOwnerPolicy(ctx, own)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.WriteJSON(set)
	}
	c.tellChanged(a)
	term.Printf(a.Stdout, "%s changed, %s removed\n", term.Count(set.Agents, "agent"), term.Count(set.Removed, "checkpoint"))
	return nil
}

func (c *policySetCmd) tellChanged(a *cli.App) {
	if len(c.changed) == 0 {
		a.Tell("nothing changed: the values are as before")
	}
	for _, line := range c.changed {
		term.Println(a.Stdout, line)
	}
}

// given returns the whole policy of a file, or else the changes.
func (c *policySetCmd) given(ctx context.Context, a *cli.App) (own ckpt.JSON, changes []string, err error) {
	if c.File != "" {
		text, err := a.Read(ctx, c.File)
		if err != nil {
			return nil, nil, err
		}
		_, err = wellformed.ParsePolicy(text)
		return text, nil, cli.Checked(err)
	}
	if changes, err = c.changes(ctx, a); err == nil {
		_, err = changePolicy(ckpt.JSON("{}"), changes)
	}
	return nil, changes, err
}

// changesAtMost is how often the changes are made anew because another program has changed the policy in between.
const changesAtMost = 5

// setAgents sets the policy of one agent: own, or what it is now with the changes.
func (c *policySetCmd) setAgents(ctx context.Context, a *cli.App, own ckpt.JSON, changes []string) (*ckpt.Policy, error) {
	operator := client.Operator{Client: a.Client()}
	for try := 1; ; try++ {
		layers, tag, err := operator.PolicyOf(ctx, c.Agent)
		if ckpt.CodeOf(err) == ckpt.CodeNotFound { // an agent can have a policy before its first save
			layers, err = a.Client().PolicyLayers(ctx, ckpt.AllAgents)
			tag = ""
		}
		if err != nil {
			return nil, err
		}
		changed := own
		if own == nil {
			if changed, err = changePolicy(ownLayer(c.Agent, layers), changes); err != nil {
				return nil, err
			}
		}
		if err := c.mayChange(ctx, a, layers, changed); err != nil {
			return nil, err
		}
		set, err := operator.ReplacePolicy(ctx, c.Agent, changed, tag)
		if ckpt.CodeOf(err) != ckpt.CodeConflict || try == changesAtMost {
			return set, err
		}
	}
}

// changes returns the typed settings, including those in files.
func (c *policySetCmd) changes(ctx context.Context, a *cli.App) ([]string, error) {
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

// zeros are the settings whose zero is not a number to count with, and the words for it.
var zeros = map[string]string{
	"routine_keep": "all", "lives_keep": "all", "pre_operation_keep": "no limit", "max_bytes": "no limit",
	"heartbeat_timeout": "never", "progress_timeout": "never", "no_progress_steps": "never", "no_progress_time": "never",
	"checkpoint_interval": "never", "refresh_after": "never",
}

// inWords is a value as a person reads it.
func inWords(name, value string) string {
	if word := zeros[name]; word != "" && (value == "0" || value == "0s") {
		return word + " (" + value + ")"
	}
	return value
}
