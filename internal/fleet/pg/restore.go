package pg

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// ErrRestored means that another host now has this database's runs.
var ErrRestored = errors.New("the runs of this database were given to another host with `fleet restore`")

// The statements that give a host's runs to another host. Each run gets a new term, so
// that the engine refuses what the former host still ships of it.
const (
	claimRuns = `INSERT INTO fleet_claims (run_uid, term, from_db, to_db, at, how, from_n, from_hash)
		SELECT r.uid, r.term + 1, r.host, $2::text, clock_timestamp(), 'restored', m.mark_n, m.mark_hash FROM fleet_runs r
		JOIN fleet_marks m ON m.db = r.host
		WHERE r.host = $1 ON CONFLICT (run_uid, term) DO NOTHING`
	// giveRuns sets as_of_n to 0, as takeRun does, until the new host ships a run: a restore can be
	// interrupted, or leave out a run whose key is missing.
	giveRuns   = `UPDATE fleet_runs SET host = $2, term = term + 1, released = NULL, as_of_n = 0 WHERE host = $1`
	giveAgents = `UPDATE fleet_agents SET host = $2 WHERE host = $1`
	giveHost   = `UPDATE fleet_hosts SET restored_by = $2 WHERE db = $1`

	getRestored = `SELECT coalesce(h.restored_by, '') FROM fleet_hosts h WHERE h.db = $1`

	lostAgents = `SELECT uid, owner, agent, coalesce(principal, ''), doc FROM fleet_agents
		WHERE host = $1 OR uid IN (SELECT r.agent_uid FROM fleet_runs r WHERE r.host = $1) ORDER BY owner, agent`
	lostRuns = `SELECT uid, agent_uid, run, term, status, doc, coalesce(key_id, '') FROM fleet_runs
		WHERE host = $1 AND status <> '' ORDER BY updated_at, uid`
	lostCheckpoints = `SELECT db, term, n, id, seq, kind, suspect, sha, size, pieces, body, doc, coalesce(key_id, '')
		FROM fleet_checkpoints WHERE run_uid = $1 ORDER BY term, seq`
	lostSegments = `SELECT id, size, data, coalesce(key_id, '') FROM fleet_segments WHERE run_uid = $1 AND db = $2`
	lostRows     = `SELECT kind, key, ord, doc, coalesce(key_id, '') FROM fleet_rows WHERE run_uid = $1 ORDER BY kind, ord, key`

	keysOfParts = `SELECT c.key_id FROM fleet_checkpoints c WHERE c.run_uid = $1 AND c.key_id IS NOT NULL GROUP BY c.key_id
		UNION ALL SELECT s.key_id FROM fleet_segments s WHERE s.run_uid = $1 AND s.key_id IS NOT NULL GROUP BY s.key_id
		UNION ALL SELECT s.key_id FROM fleet_rows s WHERE s.run_uid = $1 AND s.key_id IS NOT NULL GROUP BY s.key_id`
)

// Give gives all runs of one database to another, in one transaction. If it is
// repeated, it changes only the time.
func (e *Engine) Give(ctx context.Context, from, to string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	b := &pgx.Batch{}
	b.Queue(lockMark, from, nil, 1)
	b.Queue(claimRuns, from, to)
	b.Queue(giveRuns, from, to)
	b.Queue(giveAgents, from, to)
	b.Queue(giveHost, from, to)
	b.Queue(beat, to) // a transaction that wrote nothing would not wait for the standby
	return e.send(ctx, b, nil)
}

// restored returns ErrRestored if another host has been given a database's runs.
func (e *Engine) restored(ctx context.Context, db string) error {
	var by string
	if err := e.conn.QueryRow(ctx, getRestored, db).Scan(&by); err != nil {
		return told(err)
	}
	if by != "" {
		return fmt.Errorf("%w: database %s has them; nothing is shipped", ErrRestored, by)
	}
	return nil
}

// Lost lists the agents of a database with their runs, but not the contents of the
// runs.
func (e *Engine) Lost(ctx context.Context, db string) ([]fleet.LostAgent, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rows, err := e.conn.Query(ctx, lostAgents, db)
	if err != nil {
		return nil, told(err)
	}
	var agents []fleet.LostAgent
	at := map[string]int{}
	var a fleet.LostAgent
	_, err = pgx.ForEachRow(rows, []any{&a.UID, &a.Owner, &a.Name, &a.Principal, &a.Doc}, func() error {
		at[a.UID] = len(agents)
		agents = append(agents, a)
		return nil
	})
	if err != nil {
		return nil, told(err)
	}
	if rows, err = e.conn.Query(ctx, lostRuns, db); err != nil {
		return nil, told(err)
	}
	var r fleet.LostRun
	_, err = pgx.ForEachRow(rows, []any{&r.UID, &r.AgentUID, &r.Name, &r.Term, &r.Status, &r.Doc, &r.KeyID}, func() error {
		i, is := at[r.AgentUID]
		if !is {
			return fmt.Errorf("the engine has run %s without its agent", r.UID)
		}
		agents[i].Runs = append(agents[i].Runs, r)
		return nil
	})
	return agents, told(err)
}

// Fill reads the contents of a run. The checkpoints are those of the last host that has
// shipped any: a host that took over the run ships them all again under its own term.
func (e *Engine) Fill(ctx context.Context, r *fleet.LostRun) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	db, err := e.fillFrom(ctx, lostCheckpoints, r)
	if err != nil {
		return err
	}
	r.DB = db
	if err := e.fillSegments(ctx, r); err != nil {
		return err
	}
	return e.fillRows(ctx, lostRows, r)
}

// KeysOfParts returns the names of the keys that the contents of a run are sealed with.
func (e *Engine) KeysOfParts(ctx context.Context, uid string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rows, err := e.conn.Query(ctx, keysOfParts, uid)
	if err != nil {
		return nil, told(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return names, told(err)
}

// fillRows reads rows of a run.
func (e *Engine) fillRows(ctx context.Context, query string, r *fleet.LostRun) error {
	rows, err := e.conn.Query(ctx, query, r.UID)
	if err != nil {
		return told(err)
	}
	var row fleet.Row
	_, err = pgx.ForEachRow(rows, []any{&row.Kind, &row.Key, &row.Order, &row.Doc, &row.KeyID},
		func() error { r.Rows = append(r.Rows, row); return nil })
	return told(err)
}

// fillSegments reads the segments of a run that one database has shipped.
func (e *Engine) fillSegments(ctx context.Context, r *fleet.LostRun) error {
	rows, err := e.conn.Query(ctx, lostSegments, r.UID, r.DB)
	if err != nil {
		return told(err)
	}
	var s fleet.Segment
	_, err = pgx.ForEachRow(rows, []any{&s.ID, &s.Size, &s.Data, &s.KeyID}, func() error {
		r.Segments = append(r.Segments, s)
		s.Data = nil
		return nil
	})
	return told(err)
}

// fillFrom reads checkpoints of a run, and returns the database that they come from.
func (e *Engine) fillFrom(ctx context.Context, query string, r *fleet.LostRun) (db string, err error) {
	rows, err := e.conn.Query(ctx, query, r.UID)
	if err != nil {
		return "", told(err)
	}
	var c fleet.Checkpoint
	var from string
	var term, newest, suspect int64
	_, err = pgx.ForEachRow(rows, []any{&from, &term, &c.N, &c.ID, &c.Seq, &c.Kind, &suspect, &c.SHA256, &c.Size, &c.Pieces, &c.Body, &c.Doc, &c.KeyID}, func() error {
		if term > newest || db == "" {
			r.Checkpoints, newest, db = nil, term, from
		}
		c.Suspect = suspect == 1
		r.Checkpoints = append(r.Checkpoints, c)
		c.Body, c.Pieces = nil, nil
		return nil
	})
	return db, told(err)
}
