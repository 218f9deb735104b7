package pg

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// verifyPage is how many rows of an audit log one query reads.
const verifyPage = 2000

// The statements of Verify.
const (
	linkPage  = `SELECT a.n, a.action, a.hash, a.texts FROM fleet_audit a WHERE a.db = $1 AND a.n > $2 ORDER BY a.n LIMIT $3`
	heldClaim = `SELECT c.run_uid, c.term, c.from_db, c.to_db, coalesce(c.from_n, 0), coalesce(c.from_hash, ''), coalesce(a.hash, ''),
		coalesce(r.host, ''), coalesce(r.term, 0), c.how
		FROM fleet_claims c LEFT JOIN fleet_audit a ON a.db = c.from_db AND a.n = c.from_n LEFT JOIN fleet_runs r ON r.uid = c.run_uid
		WHERE c.how <> 'outrun' ORDER BY c.run_uid, c.term`
	orphans = `SELECT 'checkpoints', c.run_uid, count(*) FROM fleet_checkpoints c
		WHERE NOT c.run_uid IN (SELECT r.uid FROM fleet_runs r) GROUP BY c.run_uid
		UNION ALL SELECT 'segments', c.run_uid, count(*) FROM fleet_segments c WHERE NOT c.run_uid IN (SELECT r.uid FROM fleet_runs r) GROUP BY c.run_uid
		UNION ALL SELECT 'rows', c.run_uid, count(*) FROM fleet_rows c WHERE NOT c.run_uid IN (SELECT r.uid FROM fleet_runs r) GROUP BY c.run_uid
		UNION ALL SELECT 'runs', c.agent_uid, count(*) FROM fleet_runs c WHERE NOT c.agent_uid IN (SELECT r.uid FROM fleet_agents r) GROUP BY c.agent_uid`
	countRuns = `SELECT count(*) FROM fleet_runs r`
	runsOf    = `SELECT r.uid, r.agent_uid, r.owner, r.agent, r.run, r.term, r.status, r.doc, coalesce(r.key_id, '')
		FROM fleet_runs r WHERE r.host = $1 AND r.status <> '' ORDER BY r.uid`
	agentsOf = `SELECT a.uid, a.owner, a.agent, a.doc FROM fleet_agents a WHERE a.host = $1 ORDER BY a.uid`
	markOf   = `SELECT m.mark_n, m.mark_hash FROM fleet_marks m WHERE m.db = $1`
)

// Links reads the audit log of a database in order, and calls each with each page of
// rows.
func (e *Engine) Links(ctx context.Context, db string, each func([]fleet.Link) error) error {
	for after := int64(0); ; {
		rows, err := e.conn.Query(ctx, linkPage, db, after, verifyPage)
		if err != nil {
			return told(err)
		}
		page, err := pgx.CollectRows(rows, pgx.RowToStructByPos[fleet.Link])
		if err != nil || len(page) == 0 {
			return told(err)
		}
		if err := each(page); err != nil {
			return err
		}
		after = page[len(page)-1].N
	}
}

// MarkOf returns the mark of a database, zero if it has shipped nothing.
func (e *Engine) MarkOf(ctx context.Context, db string) (m fleet.Mark, err error) {
	err = e.conn.QueryRow(ctx, markOf, db).Scan(&m.N, &m.Hash)
	return m, told(err)
}

// Claims lists all claims, sorted by run and term.
func (e *Engine) Claims(ctx context.Context) ([]fleet.ClaimHeld, error) {
	rows, err := e.conn.Query(ctx, heldClaim)
	if err != nil {
		return nil, told(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[fleet.ClaimHeld])
	return all, told(err)
}

// Orphans calls each for every run or agent that does not exist but to which rows
// belong, with their kind and number.
func (e *Engine) Orphans(ctx context.Context, each func(kind, uid string, n int64)) error {
	rows, err := e.conn.Query(ctx, orphans)
	if err != nil {
		return told(err)
	}
	var kind, uid string
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&kind, &uid, &n}, func() error { each(kind, uid, n); return nil })
	return told(err)
}

// CountRuns counts the runs of all hosts.
func (e *Engine) CountRuns(ctx context.Context) (n int64, err error) {
	err = e.conn.QueryRow(ctx, countRuns).Scan(&n)
	return n, told(err)
}

// HeldRun is a run with the names of its owner and agent.
type HeldRun struct {
	fleet.LostRun
	Owner, Agent string
}

// RunsOf lists the runs of a database, but not their contents.
func (e *Engine) RunsOf(ctx context.Context, db string) (all []HeldRun, err error) {
	rows, err := e.conn.Query(ctx, runsOf, db)
	if err != nil {
		return nil, told(err)
	}
	var r HeldRun
	_, err = pgx.ForEachRow(rows, []any{&r.UID, &r.AgentUID, &r.Owner, &r.Agent, &r.Name, &r.Term, &r.Status, &r.Doc, &r.KeyID}, func() error {
		all = append(all, r)
		return nil
	})
	return all, told(err)
}

// AgentsOf lists the agents of a database.
func (e *Engine) AgentsOf(ctx context.Context, db string) (all []fleet.LostAgent, err error) {
	rows, err := e.conn.Query(ctx, agentsOf, db)
	if err != nil {
		return nil, told(err)
	}
	var a fleet.LostAgent
	_, err = pgx.ForEachRow(rows, []any{&a.UID, &a.Owner, &a.Name, &a.Doc}, func() error { all = append(all, a); return nil })
	return all, told(err)
}
