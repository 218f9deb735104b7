package main

import "github.com/ckptsidecar/ckptsidecar/internal/hook"

// projectAgent returns the named agent. If none is named, it returns the agent that hooks record
// for the folder's project.
func (a *app) projectAgent(named, folder string) string {
	if named = a.NamedAgent(named); named != "" {
		return named
	}
	return hook.ProjectOf(folder).Agent
}
