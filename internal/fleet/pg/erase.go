package pg

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// The statements of an erasure, in their order. Each works on one erasure: $1 is the database,
// $2 the row of its audit log. They leave alone what another host owns by now. An agent with
// the same name and principal is the same agent on every host.
const (
	eraseOwn = `INSERT INTO fleet_erased (uid, db, n) SELECT u.uid, $1, $2::bigint FROM unnest($3::text[]) AS u(uid)
		WHERE NOT u.uid IN (SELECT r.uid FROM fleet_runs r WHERE r.host <> $1) ON CONFLICT (uid) DO NOTHING`
	eraseSame = `INSERT INTO fleet_erased (uid, db, n) SELECT a.uid, $1, $2::bigint FROM fleet_agents a
		WHERE a.principal = $3 AND a.agent = $4 AND a.host <> $1 ON CONFLICT (uid) DO NOTHING`
	eraseRunsOfSame = `INSERT INTO fleet_erased (uid, db, n) SELECT r.uid, $1, $2::bigint FROM fleet_runs r JOIN fleet_erased e ON e.uid = r.agent_uid
		JOIN fleet_agents a ON a.uid = r.agent_uid WHERE e.db = $1 AND e.n = $2 AND a.host = r.host ON CONFLICT (uid) DO NOTHING`
	erasedHere = `SELECT e.uid FROM fleet_erased e WHERE e.db = $1 AND e.n = $2`
	// eraseTextsOfSame removes what the audit logs of other hosts say about those agents.
	// eraseTexts removes what this host's audit log says.
	eraseTextsOfSame = `UPDATE fleet_audit SET texts = NULL FROM fleet_agents a JOIN fleet_erased e ON e.uid = a.uid
		WHERE e.db = $1 AND e.n = $2 AND a.host <> $1 AND fleet_audit.db = a.host AND fleet_audit.owner = a.owner AND fleet_audit.agent = a.agent
		AND fleet_audit.texts IS NOT NULL`
	dropErasedAgents = `DELETE FROM fleet_agents WHERE uid IN (` + erasedHere + `)`

	// listErasures lists the erasures of which other hosts may have copies, with the hosts that
	// have not confirmed.
	listErasures = `SELECT x.db, x.n, x.owner, x.agent, x.at, coalesce(h.name, ''), o.db, o.name
		FROM fleet_erasures x LEFT JOIN fleet_hosts h ON h.db = x.db JOIN fleet_hosts o ON o.db <> x.db
		LEFT JOIN fleet_confirmations c ON c.db = x.db AND c.n = x.n AND c.host = o.db
		WHERE c.host IS NULL AND ` + livesOn + ` AND (x.db, x.n) IN (SELECT e.db, e.n FROM fleet_erased e) ORDER BY x.at, x.db, x.n, o.name, o.db`
	listErased = `SELECT e.uid FROM fleet_erased e WHERE e.db = $1 AND e.n = $2`
	confirm    = `INSERT INTO fleet_confirmations (db, n, host, at) VALUES ($1, $2, $3, clock_timestamp()) ON CONFLICT (db, n, host) DO NOTHING`

	listOthers = `SELECT o.db, o.name FROM fleet_hosts o WHERE o.db <> $1 AND ` + livesOn + ` ORDER BY o.name, o.db`
	// livesOn leaves out a host that a person has forgotten.
	livesOn = `NOT EXISTS (SELECT 1 FROM fleet_marks m WHERE m.db = o.db AND m.forgotten IS NOT NULL)`
)

// erasures notes which copies of erased agents no host may ship again, and removes the copies
// of other hosts.
func (s *shipping) erasures() {
	for _, e := range s.changes.Erased {
		if len(e.UIDs) == 0 {
			continue
		}
		s.Queue(eraseOwn, s.db, e.N, e.UIDs)
		if !strings.HasPrefix(e.Principal, fleet.HostRealm+"/") && e.Principal != "" {
			s.Queue(eraseSame, s.db, e.N, e.Principal, e.Agent)
		}
		s.Queue(eraseRunsOfSame, s.db, e.N)
		s.Queue(eraseTextsOfSame, s.db, e.N)
		for _, drop := range dropsOf(erasedHere) {
			s.Queue(drop, s.db, e.N)
		}
		s.Queue(dropErasedAgents, s.db, e.N)
	}
}

// Erasures lists the erasures of all hosts that some host has not confirmed.
func (e *Engine) Erasures(ctx context.Context) ([]fleet.ErasureShown, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rows, err := e.conn.Query(ctx, listErasures)
	if err != nil {
		return nil, told(err)
	}
	all := []fleet.ErasureShown{}
	var x fleet.ErasureShown
	var waits fleet.HostNamed
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&x.DB, &x.N, &x.Owner, &x.Agent, &at, &x.Host, &waits.DB, &waits.Name}, func() error {
		if last := len(all) - 1; last < 0 || all[last].DB != x.DB || all[last].N != x.N {
			x.At, x.Waits = at.UTC().Format("2006-01-02T15:04:05.000Z"), nil
			all = append(all, x)
		}
		last := &all[len(all)-1]
		last.Waits = append(last.Waits, waits)
		return nil
	})
	return all, told(err)
}

// Erased lists the uids of the agents and runs that an erasure has removed.
func (e *Engine) Erased(ctx context.Context, db string, n int64) ([]string, error) {
	return e.names(ctx, listErased, db, n)
}

// Confirm notes that a host has erased its own copies.
func (e *Engine) Confirm(ctx context.Context, db string, n int64, host string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	b := &pgx.Batch{}
	b.Queue(confirm, db, n, host)
	b.Queue(beat, host) // a transaction that wrote nothing would not wait for the standby
	return e.send(ctx, b, nil)
}

// Others lists the other hosts, except those that are gone.
func (e *Engine) Others(ctx context.Context, db string) ([]fleet.HostNamed, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rows, err := e.conn.Query(ctx, listOthers, db)
	if err != nil {
		return nil, told(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[fleet.HostNamed])
	return all, told(err)
}
