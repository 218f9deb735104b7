package main

import (
	"strings"

	"github.com/alecthomas/kong"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
)

// splitRunName accepts AGENT/RUN for AGENT --run RUN in every command that has both.
func splitRunName(parsed *kong.Context) error {
	selected := parsed.Selected()
	if selected == nil {
		return nil
	}
	var agent *kong.Value
	for _, arg := range selected.Positional {
		if arg.Name == "agent" && arg.Tag.Get("names") != "checkpoint" {
			agent = arg
		}
	}
	if agent == nil {
		return nil
	}
	for _, flag := range selected.Flags {
		if flag.Name != "run" {
			continue
		}
		name, run, found := strings.Cut(agent.Target.String(), "/")
		switch named := flag.Target.String(); {
		case !found:
		case named != "" && named != run:
			return cli.Usagef("give one run, not two: %s and %s", run, named)
		default:
			agent.Target.SetString(name)
			flag.Target.SetString(run)
		}
	}
	return nil
}
