package fleetcmd

import (
	"context"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// Checkpoint reads a checkpoint of this host, or one of another host that the fleet's
// engine has.
func Checkpoint(ctx context.Context, a *cli.App, id string, state bool) (*ckpt.Checkpoint, error) {
	c, err := a.Client().Checkpoint(ctx, id, state)
	if ckpt.CodeOf(err) != ckpt.CodeNotFound {
		return c, err
	}
	return client.Operator{Client: a.Client()}.FleetCheckpoint(ctx, id, state)
}

// Diff compares two checkpoints of this host or of others.
func Diff(ctx context.Context, a *cli.App, from, to string) (*ckpt.Diff, error) {
	d, err := a.Client().Diff(ctx, from, to)
	if ckpt.CodeOf(err) != ckpt.CodeNotFound {
		return d, err
	}
	return client.Operator{Client: a.Client()}.FleetDiff(ctx, from, to)
}

// PromptsQuery are the flags that choose prompts of the fleet.
type PromptsQuery struct {
	Host      string `help:"With --fleet: only of this host, by name or database." placeholder:"NAME"`
	Principal string `help:"With --fleet: only of this principal, such as acme/build." placeholder:"NAME"`
	Agent     string `help:"With --fleet: only of agents of this name." placeholder:"NAME"`
}

// List lists the open prompts of all hosts for `prompts --fleet`.
func (c *PromptsQuery) List(ctx context.Context, a *cli.App, paged cli.Paged) error {
	filter := ckpt.RunFilter{Agent: c.Agent}
	if err := cli.Checked(filter.Check()); err != nil {
		return err
	}
	all := &survey.FleetPrompts{Prompts: []survey.FleetPrompt{}}
	var err error
	all.Next, err = paged.Read(func(before string, limit int) (ckpt.Ref, error) {
		q := fleet.RunsQuery{Host: c.Host, Principal: c.Principal, Agent: c.Agent, Before: before, Limit: limit}
		page, err := client.Operator{Client: a.Client()}.FleetPrompts(ctx, q)
		if err != nil {
			return "", err
		}
		all.Prompts, all.Unopened = append(all.Prompts, page.Prompts...), all.Unopened+page.Unopened
		return page.Next, nil
	})
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(all)
	}
	promptsText(a, all)
	paged.More(a, all.Next)
	return nil
}

func promptsText(a *cli.App, all *survey.FleetPrompts) {
	for i := range all.Prompts {
		p := &all.Prompts[i]
		if i > 0 {
			term.Println(a.Stdout)
		}
		term.Printf(a.Stdout, "%s  run %s of %s, asked %s\n", a.Out.Bold(a.Out.ID(p.ID)), p.Run, p.Agent, term.Moment(p.At))
		term.Printf(a.Stdout, "  on host %s, owner %s\n", p.Host, p.Owner)
		term.Paragraph(a.Stdout, a.Out, 2, p.Question)
		if !p.ExpiresAt.IsZero() {
			term.Printf(a.Stdout, "  expires %s\n", term.Moment(p.ExpiresAt))
		}
	}
	if len(all.Prompts) == 0 {
		a.Tell("nothing waits for an answer on any host")
	} else {
		a.Tell("answer a prompt on its host: ckptsidecar prompts answer ID CHOICE")
	}
	if all.Unopened > 0 {
		a.Tell("%s more, open or not, are sealed with keys that this host does not have", term.Count(all.Unopened, "prompt"))
	}
}
