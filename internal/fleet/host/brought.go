package host

import (
	"context"
	"sync"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/journal"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// brought are the runs that resumptions have brought here since the daemon began, and that
// have saved nothing here yet. Each plan of such a run must say where the run comes from: nobody knows whether the
// caller got the plan before.
type brought struct {
	mu   sync.Mutex
	runs map[string]*ckpt.PlanFleet // by fleet.RunName
}

// keep notes what the plans of a run must say. A nil brought keeps nothing.
func (b *brought) keep(run string, plan *ckpt.PlanFleet) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.runs == nil {
		b.runs = map[string]*ckpt.PlanFleet{}
	}
	b.runs[run] = plan
}

// plan returns what the plan of a run must say, nil for nothing.
func (b *brought) plan(ctx context.Context, j *journal.Journal, owner, agent, run string) *ckpt.PlanFleet {
	if b == nil {
		return nil
	}
	name := fleet.RunName(owner, agent, run)
	b.mu.Lock()
	plan := b.runs[name]
	b.mu.Unlock()
	if plan == nil {
		return nil
	}
	status, term, seq, err := j.Standing(ctx, owner, agent, run)
	if err == nil && term == plan.Term && seq <= plan.AcknowledgedTo && !fleet.LetsGo(status) {
		return plan
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.runs[name] == plan {
		delete(b.runs, name)
	}
	return nil
}
