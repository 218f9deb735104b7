package pg

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// The statements by which a database joins again under another id. Its copies of runs that
// the engine has under the former id are strands, because another host may go on with
// those runs.
const (
	putRejoined = `INSERT INTO fleet_rejoined (db, run_uid, from_n, at) SELECT $1, r.uid, $3::bigint, clock_timestamp()
		FROM fleet_runs r WHERE r.host = $2 OR r.uid IN (SELECT c.run_uid FROM fleet_claims c WHERE c.from_db = $2)
		ON CONFLICT (db, run_uid) DO NOTHING`
	// putLostBefore comes first, for runs that other hosts had claimed from the former id. What the database has of
	// them up to the last claim is no strand: the claimant got it from the engine.
	putLostBefore = `INSERT INTO fleet_rejoined (db, run_uid, from_n, at) SELECT $1, c.run_uid, coalesce(c.from_n, 0), clock_timestamp()
		FROM fleet_claims c JOIN fleet_runs r ON r.uid = c.run_uid WHERE c.from_db = $2 AND r.host <> $2 AND coalesce(c.from_n, 0) < $3::bigint
		AND NOT EXISTS (SELECT 1 FROM fleet_claims e WHERE e.run_uid = c.run_uid AND e.from_db = $2 AND e.term > c.term)
		ON CONFLICT (db, run_uid) DO NOTHING`
	// putFormer notes that no host uses the former id any more, as far as is known. The row
	// has no run, so that nothing takes it for a strand.
	putFormer = `INSERT INTO fleet_rejoined (db, run_uid, from_n, at, former) VALUES ($1, '', $3, clock_timestamp(), $2)
		ON CONFLICT (db, run_uid) DO NOTHING`
	hashAt         = `SELECT a.hash FROM fleet_audit a WHERE a.db = $1 AND a.n = $2`
	decideRejoined = `UPDATE fleet_rejoined SET decided = $3, decided_by = $4 WHERE run_uid = $1 AND db = $2 AND coalesce(decided, '') = ''`
	needRejoined   = `SELECT 1 / count(*) FROM fleet_rejoined WHERE run_uid = $1 AND db = $2 AND decided = $3 AND decided_by = $4`
)

// HashAt returns the hash of a row of an audit log, "" if the engine does not have the
// row.
func (e *Engine) HashAt(ctx context.Context, db string, n int64) (hash string, err error) {
	err = e.conn.QueryRow(ctx, hashAt, db, n).Scan(&hash)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return hash, told(err)
}

// Rejoin notes that a database joins again. What it has of the runs of its former id after
// row from of its audit log is a strand.
func (e *Engine) Rejoin(ctx context.Context, to fleet.Host, former string, from int64) error {
	if _, _, err := e.Register(ctx, to); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	b := &pgx.Batch{}
	b.Queue(putLostBefore, to.DB, former, from)
	b.Queue(putRejoined, to.DB, former, from)
	b.Queue(putFormer, to.DB, former, from)
	b.Queue(beat, to.DB) // a transaction that wrote nothing would not wait for the standby
	return e.send(ctx, b, nil)
}
