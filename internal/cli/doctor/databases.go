package doctor

import (
	"context"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// lookDatabases finds a user whose work is in two databases: in one of an own daemon, and in the system's.
func lookDatabases(ctx context.Context, p *patient) []finding {
	own, system := daemon.Endpoints()
	switch {
	case p.status == nil:
		return []finding{skipped("no daemon answers")}
	case own == system:
		return nil
	case p.status.Endpoint == system && daemon.OwnDatabase() != "":
		return []finding{warn("use one of them: move your own database away, or start your own daemon and name no endpoint",
			"this is the system's daemon, and you have a database of your own too: %s", daemon.OwnDatabase())}
	case p.status.Endpoint == own:
		if n := agentsAt(ctx, system); n > 0 {
			return []finding{warn("use one of them: move the agents with export and import, see HOWTO.md",
				"this is your own daemon, and the system's daemon at %s has %s of yours too", system, term.Count(n, "agent"))}
		}
	}
	return []finding{ok("your work is in one database")}
}

// agentsAt counts the user's agents at another daemon, 0 if it does not answer.
func agentsAt(ctx context.Context, socket string) int64 {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	other := &client.Client{Socket: socket, Owner: client.Self()}
	defer other.Close()
	page, err := other.Agents(ctx, ckpt.AgentFilter{Limit: ckpt.MaxLimit})
	if err != nil {
		return 0
	}
	return int64(len(page.Agents))
}
