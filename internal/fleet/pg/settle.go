package pg

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

const (
	lackedRuns = `SELECT u.uid FROM unnest($1::text[]) AS u(uid) WHERE NOT u.uid IN (SELECT r.uid FROM fleet_runs r)
		AND NOT u.uid IN (SELECT e.uid FROM fleet_erased e)`
	strayRuns = `SELECT r.owner, r.agent, r.run FROM fleet_runs r WHERE r.host = $1 AND r.as_of_n > 0 AND NOT r.uid = ANY($2::text[])`
	// broughtRuns are runs that a host was given and has not shipped.
	broughtRuns = `SELECT r.uid FROM fleet_runs r WHERE r.host = $1 AND r.as_of_n = 0 AND r.uid = ANY($2::text[])`
	heldAgents  = `SELECT a.uid FROM fleet_agents a WHERE a.host = $1 AND a.uid = ANY($2::text[])`
)

// Lacks returns those of the runs that the engine has of no host and that were not erased.
func (e *Engine) Lacks(ctx context.Context, runs []fleet.Name) ([]fleet.Name, error) {
	return e.pick(ctx, runs, lackedRuns, uidsOf(runs))
}

// Holds returns those of the agents that the engine has of a host.
func (e *Engine) Holds(ctx context.Context, db string, agents []fleet.Name) ([]fleet.Name, error) {
	return e.pick(ctx, agents, heldAgents, db, uidsOf(agents))
}

// Strays returns the names of the runs that the engine has of a host although the host
// does not have them. It leaves out runs that the host was given but has not shipped yet.
func (e *Engine) Strays(ctx context.Context, db string, here []fleet.Name) (names []fleet.Name, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rows, err := e.conn.Query(ctx, strayRuns, db, uidsOf(here))
	if err != nil {
		return nil, told(err)
	}
	var n fleet.Name
	_, err = pgx.ForEachRow(rows, []any{&n.Owner, &n.Agent, &n.Run}, func() error {
		names = append(names, n)
		return nil
	})
	return names, told(err)
}

// DropBrought removes runs that a host was given, has brought to itself and does not ship.
func (e *Engine) DropBrought(ctx context.Context, db string, here []fleet.Name) error {
	if len(here) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	b := &pgx.Batch{}
	for _, drop := range dropsOf(broughtRuns) {
		b.Queue(drop, db, uidsOf(here))
	}
	e.has.forget()    // the agents of these runs can go now too
	b.Queue(beat, db) // a transaction that wrote nothing would not wait for the standby
	return e.send(ctx, b, nil)
}

// pick returns those of all whose uids a query returns.
func (e *Engine) pick(ctx context.Context, all []fleet.Name, query string, args ...any) (some []fleet.Name, err error) {
	if len(all) == 0 {
		return nil, nil
	}
	uids, err := e.names(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	picked := make(map[string]bool, len(uids))
	for _, uid := range uids {
		picked[uid] = true
	}
	for _, n := range all {
		if picked[n.UID] {
			some = append(some, n)
		}
	}
	return some, nil
}

func uidsOf(names []fleet.Name) []string {
	uids := make([]string, len(names))
	for i := range names {
		uids[i] = names[i].UID
	}
	return uids
}
