package main

import (
	"context"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/hook"
)

// projectAgent returns the named agent. If none is named, it returns the agent that hooks record
// for the folder's project.
func (a *app) projectAgent(ctx context.Context, named, folder string) string {
	if named = a.NamedAgent(named); named != "" {
		return named
	}
	p := hook.ProjectOf(folder)
	chosen, err := p.Choose(ctx, a.Client())
	if err == nil && chosen == p.Agent {
		a.tellFormer(ctx, p)
	}
	return chosen
}

// tellFormer tells the user where the checkpoints of an earlier version can be. That version did
// not record the folder.
func (a *app) tellFormer(ctx context.Context, p hook.Project) {
	_, errNow := a.Client().Runs(ctx, ckpt.RunFilter{Agent: p.Agent, Limit: 1})
	_, errFormer := a.Client().Runs(ctx, ckpt.RunFilter{Agent: p.Former, Limit: 1})
	if ckpt.CodeOf(errNow) == ckpt.CodeNotFound && errFormer == nil {
		a.Tell("the agent name now includes a hash of the folder path: this agent is %s; add --agent %s to continue the old agent %s",
			p.Agent, p.Former, p.Former)
	}
}
