package policycmd

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// mayChange shows what a change of a policy changes. If the change removes checkpoints at once, it shows them, and asks.
// layers is the policy as it is; own replaces what the agent, or with '*' the owner, sets.
func (c *policySetCmd) mayChange(ctx context.Context, a *cli.App, layers *ckpt.PolicyLayers, own ckpt.JSON) error {
	after, err := c.merged(layers, own)
	if err != nil {
		return err
	}
	lines, err := differences(layers.Policy, after)
	if err != nil {
		return err
	}
	going, err := c.removes(ctx, a, layers, own)
	if c.changed = lines; err != nil || len(going) == 0 || c.Yes {
		return err
	}
	for _, line := range lines {
		a.Tell("%s", line)
	}
	a.Tell("this removes %s at once:", term.Count(len(going), "checkpoint"))
	for i, g := range going {
		if i == goingShown {
			a.Tell("  and %d more", len(going)-i)
			break
		}
		a.Tell("  number %d of %s, run %s, %s, %s: %s", g.Seq, g.Agent, g.Run, g.Kind, term.Bytes(g.StoredSize), g.Reason)
	}
	if !a.Interactive {
		return cli.Usagef("nothing was changed, because this removes checkpoints and standard input is not a terminal to ask: add --yes")
	}
	if !a.Agrees("Change the policy? [y/N] ") {
		return &cli.ExitError{Code: cli.ExitFailed, Message: "nothing was changed"}
	}
	return nil
}

// goingShown is how many checkpoints are listed before the question.
const goingShown = 10

// merged returns the policy that counts if own replaces what the agent, or with '*' the owner, sets.
func (c *policySetCmd) merged(layers *ckpt.PolicyLayers, own ckpt.JSON) (ckpt.Policy, error) {
	owner, agent := layers.Owner, own
	if c.Agent == ckpt.AllAgents {
		owner, agent = own, layers.Agent
	}
	p, _, _, err := wellformed.MergePolicies(
		wellformed.Layer{From: ckpt.PolicyOfDaemon, Set: layers.Daemon},
		wellformed.Layer{From: ckpt.PolicyOfOwner, Set: owner},
		wellformed.Layer{From: ckpt.PolicyOfAgent, Set: agent},
	)
	p.Fill()
	return p, cli.Checked(err)
}

// removes returns the checkpoints that the changed policy removes at once, and the present one does not.
func (c *policySetCmd) removes(ctx context.Context, a *cli.App, layers *ckpt.PolicyLayers, own ckpt.JSON) ([]survey.Going, error) {
	operator := client.Operator{Client: a.Client()}
	if c.Agent != ckpt.AllAgents {
		return c.removesOf(ctx, operator, c.Agent, layers, own)
	}
	var all []survey.Going
	for page := (ckpt.AgentFilter{}); ; {
		list, err := a.Client().Agents(ctx, page)
		if err != nil {
			return nil, err
		}
		for i := range list.Agents {
			name := list.Agents[i].Agent
			its, err := a.Client().PolicyLayers(ctx, name)
			if err != nil {
				return nil, err
			}
			going, err := c.removesOf(ctx, operator, name, its, own)
			if err != nil {
				return nil, err
			}
			all = append(all, going...)
		}
		if list.Next == "" {
			return all, nil
		}
		page.Before = string(list.Next)
	}
}

func (c *policySetCmd) removesOf(ctx context.Context, operator client.Operator, agent string, layers *ckpt.PolicyLayers, own ckpt.JSON) ([]survey.Going, error) {
	after, err := c.merged(layers, own)
	if err != nil {
		return nil, err
	}
	then := whatIf(agent, layers.Policy, after)
	if !then.WhatIf() {
		return nil, nil
	}
	already, err := atOnce(ctx, operator, survey.ForecastQuery{Agent: agent})
	if ckpt.CodeOf(err) == ckpt.CodeNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	going, err := atOnce(ctx, operator, then)
	return slices.DeleteFunc(going, func(g survey.Going) bool {
		return slices.ContainsFunc(already, func(old survey.Going) bool { return old.Checkpoint == g.Checkpoint })
	}), err
}

// atOnce returns the checkpoints that are removed as soon as the policy is set, or as soon as the clock is trusted.
func atOnce(ctx context.Context, operator client.Operator, q survey.ForecastQuery) ([]survey.Going, error) {
	q.Limit = survey.MaxForecast
	v, err := operator.Forecast(ctx, q)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(v.Going, func(g survey.Going) bool {
		return g.When != survey.GoesNow && (g.When != survey.GoesByAge || g.Goes.After(v.At.Time))
	}), nil
}

// whatIf asks about the rules of retention that differ.
func whatIf(agent string, before, after ckpt.Policy) survey.ForecastQuery {
	q := survey.ForecastQuery{Agent: agent}
	if after.RoutineKeep != before.RoutineKeep {
		q.RoutineKeep = &after.RoutineKeep
	}
	if after.RecoveryKeep != before.RecoveryKeep {
		q.RecoveryKeep = &after.RecoveryKeep
	}
	if after.PreOperationKeep != before.PreOperationKeep {
		q.PreOperationKeep = &after.PreOperationKeep
	}
	if after.EndedKeep != before.EndedKeep {
		q.EndedKeep = &after.EndedKeep
	}
	if after.MaxBytes != before.MaxBytes {
		q.MaxBytes = &after.MaxBytes
	}
	return q
}

// differences returns a line for each setting that changes: its name, the old value and the new one.
func differences(before, after ckpt.Policy) (lines []string, err error) {
	old, now := map[string]string{}, map[string]string{}
	if err := flatten(old, before); err != nil {
		return nil, err
	}
	if err := flatten(now, after); err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for name := range maps.Keys(old) {
		names[name] = true
	}
	for name := range maps.Keys(now) {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if old[name] != now[name] {
			lines = append(lines, fmt.Sprintf("%s: %s → %s", name, cli.OrNone(old[name]), cli.OrNone(now[name])))
		}
	}
	return lines, nil
}

// flatten notes the values of a policy. The parts of a setting have names with dots.
func flatten(into map[string]string, p ckpt.Policy) error {
	members, err := membersOf(p)
	if err != nil {
		return err
	}
	for _, member := range members {
		flattenPart(into, member.name, member.value)
	}
	return nil
}

func flattenPart(into map[string]string, name string, value json.RawMessage) {
	var parts map[string]json.RawMessage
	if json.Unmarshal(value, &parts) != nil || parts == nil {
		into[name] = strings.Trim(string(value), `"`)
		return
	}
	for part, inner := range parts {
		flattenPart(into, name+"."+part, inner)
	}
}
