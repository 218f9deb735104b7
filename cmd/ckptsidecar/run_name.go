package main

import (
	"strings"

	"github.com/alecthomas/kong"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
)

// splitRunName accepts AGENT/RUN for AGENT --run RUN in every command that has both, also as the value of --run: lists with
// -q print runs so.
func splitRunName(parsed *kong.Context) error {
	selected := parsed.Selected()
	if selected == nil {
		return nil
	}
	var agent, run *kong.Value
	for _, flag := range selected.Flags {
		switch flag.Name {
		case "run":
			run = flag.Value
		case "agent":
			agent = flag.Value
		}
	}
	for _, arg := range selected.Positional {
		if arg.Name == "agent" && arg.Tag.Get("names") != "checkpoint" {
			agent = arg
		}
	}
	if agent == nil || run == nil {
		return nil
	}
	if name, named, found := strings.Cut(agent.Target.String(), "/"); found {
		if given := run.Target.String(); given != "" && given != named && given != name+"/"+named {
			return cli.Usagef("give one run, not two: %s and %s", named, given)
		}
		agent.Target.SetString(name)
		run.Target.SetString(named)
	}
	if of, named, found := strings.Cut(run.Target.String(), "/"); found && ckpt.CheckAgentName(of) == nil && ckpt.CheckLife(named) == nil {
		if given := agent.Target.String(); given != "" && given != of {
			return cli.Usagef("give one agent, not two: %s and %s", given, of)
		}
		agent.Target.SetString(of)
		run.Target.SetString(named)
	}
	return nil
}
