package doctor

import (
	"context"
	"errors"
	"os/user"
	"slices"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

// lookOwners lists owners that are no users of this machine, which happens after a
// database came from another one. Only an administrator sees the agents of all owners.
func lookOwners(ctx context.Context, p *patient) []finding {
	if p.status == nil {
		return []finding{skipped("no daemon answers")}
	}
	count := map[string]int64{}
	for f := (ckpt.AgentFilter{Limit: ckpt.MaxLimit}); ; {
		page, err := p.app.Client().Agents(ctx, f)
		if err != nil {
			return []finding{warn("", "agents cannot be listed: %v", cli.MessageOf(err))}
		}
		for i := range page.Agents {
			count[page.Agents[i].Owner]++
		}
		if f.Before = string(page.Next); f.Before == "" {
			break
		}
	}
	var strangers []string
	agents := int64(0)
	for owner, n := range count {
		id, isUser := strings.CutPrefix(owner, "uid:")
		var unknown user.UnknownUserIdError
		if _, err := user.LookupId(id); isUser && errors.As(err, &unknown) {
			strangers = append(strangers, owner)
			agents += n
		}
	}
	if len(strangers) == 0 {
		return []finding{ok("each agent that you may see belongs to a user of this machine")}
	}
	slices.Sort(strangers)
	return []finding{warn("if they came from another machine, give them to a user of this one: see HOWTO.md, Move a whole machine",
		"%s of %s, who is not a user of this machine", term.Count(agents, "agent"), strings.Join(strangers, ", "))}
}
