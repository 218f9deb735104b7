package pg

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// The statements that change the owners of what this host has shipped.
const (
	nameAgents = `UPDATE fleet_agents SET principal = u.principal FROM unnest($2::text[], $3::text[]) AS u(uid, principal)
		WHERE fleet_agents.uid = u.uid AND fleet_agents.host = $1 AND coalesce(fleet_agents.principal, '') <> u.principal`
	nameRuns = `UPDATE fleet_runs SET principal = u.principal FROM unnest($2::text[], $3::text[]) AS u(uid, principal)
		WHERE fleet_runs.agent_uid = u.uid AND fleet_runs.host = $1 AND coalesce(fleet_runs.principal, '') <> u.principal`
)

// SetPrincipals sets the owners of the agents of a database, by their uids, and of
// their runs.
func (e *Engine) SetPrincipals(ctx context.Context, db string, principals map[string]string) error {
	if len(principals) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var uids, names []string
	for uid, name := range principals {
		uids, names = append(uids, uid), append(names, name)
	}
	b := &pgx.Batch{}
	b.Queue(nameAgents, db, uids, names)
	b.Queue(nameRuns, db, uids, names)
	b.Queue(beat, db) // a transaction that wrote nothing would not wait for the standby
	return e.send(ctx, b, nil)
}
