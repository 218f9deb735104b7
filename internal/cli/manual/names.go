package manual

import (
	"context"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

// The kinds of names that the daemon can complete.
const (
	completeAgents      = "agents"
	completeCheckpoints = "checkpoints"
	completeRuns        = "runs"
)

// CompleteNames prints the names with which a shell completes a word. The scripts of
// Completion call it. Without a daemon it prints nothing.
type CompleteNames struct {
	Kind  string `arg:"" enum:"agents,checkpoints,runs"`
	Typed string `arg:"" optional:""`
}

// completeTime is the longest time that a shell waits for names.
const completeTime = 2 * time.Second

// offered is how many checkpoints or runs are offered.
const offered = 50

// Run prints one name on each line.
func (c *CompleteNames) Run(ctx context.Context, a *cli.App) error {
	ctx, cancel := context.WithTimeout(ctx, completeTime)
	defer cancel()
	names, err := c.names(ctx, a)
	if err != nil {
		return nil // a shell has no place for a message
	}
	for _, name := range names {
		if strings.HasPrefix(name, c.Typed) {
			term.Println(a.Stdout, name)
		}
	}
	return nil
}

func (c *CompleteNames) names(ctx context.Context, a *cli.App) (names []string, err error) {
	agent, _, inAgent := strings.Cut(c.Typed, "/")
	if c.Kind != completeRuns && !inAgent {
		return a.AgentNames(ctx)
	}
	if c.Kind == completeRuns {
		agent = a.NamedAgent("")
	}
	runs, err := a.Client().Runs(ctx, ckpt.RunFilter{Agent: agent, Limit: offered})
	if err != nil {
		return nil, err
	}
	for i := range runs.Runs {
		if c.Kind == completeRuns {
			names = append(names, runs.Runs[i].Run)
		} else {
			names = append(names, agent+"/"+runs.Runs[i].Run)
		}
	}
	if c.Kind != completeCheckpoints {
		return names, nil
	}
	page, err := a.Client().Checkpoints(ctx, ckpt.CheckpointFilter{Agent: agent, Limit: offered})
	if err != nil {
		return nil, err
	}
	for i := range page.Checkpoints {
		names = append(names, cli.CheckpointName(&page.Checkpoints[i]))
	}
	return names, nil
}

// namesAt returns what the daemon completes as an argument of a command, "" for nothing.
func namesAt(n *kong.Node) string {
	for _, arg := range n.Positional {
		switch {
		case arg.Tag.Get("names") == "checkpoint":
			return completeCheckpoints
		case arg.Name == "agent":
			return completeAgents
		}
	}
	return ""
}
