package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// The statements that forget a host. The first locks the host's mark, as the host's batches do: a batch is either
// committed before, or finds that the host must register again.
const (
	forget = `UPDATE fleet_marks SET forgotten = clock_timestamp() WHERE db = $1 AND seen_at + $2::interval < clock_timestamp()
		AND NOT EXISTS (SELECT 1 FROM fleet_hosts h WHERE h.db = $1 AND h.lease_until > clock_timestamp())`
	runsOfHost = `SELECT r.uid FROM fleet_runs r WHERE r.host = $1`
	// dropAgentsOfHost leaves those to which runs belong that other hosts have claimed.
	dropAgentsOfHost = `DELETE FROM fleet_agents WHERE host = $1 AND NOT uid IN (SELECT r.agent_uid FROM fleet_runs r)`
	needForgotten    = `SELECT 1 / count(*) FROM fleet_marks WHERE db = $1 AND forgotten IS NOT NULL
		AND NOT EXISTS (` + runsOfHost + `)`
)

// Forget notes that a host is gone for good: no erasure waits for it until it registers again. With runs, it deletes
// the runs that the engine has of the host. It returns ErrMoved if the host has runs that must stay, or if the engine
// has heard from it in the last while.
func (e *Engine) Forget(ctx context.Context, db string, runs bool, silent time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	b := &pgx.Batch{}
	b.Queue(forget, db, silent)
	if runs {
		for _, drop := range append(dropsOf(runsOfHost), dropAgentsOfHost) {
			b.Queue(drop, db)
		}
	}
	b.Queue(needForgotten, db)
	return e.send(ctx, b, nil)
}
