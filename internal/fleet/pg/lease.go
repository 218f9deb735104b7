package pg

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// ErrLease means that another daemon holds the lease of this database: two daemons have
// copies of it.
var ErrLease = errors.New("another daemon holds the lease of this database in the fleet: two daemons have copies of it")

// The statements of a lease. All times are the engine's. When a daemon starts, it takes
// the lease with an incarnation of its own, and renews the lease under that incarnation.
const (
	beginLease = `UPDATE fleet_hosts SET incarnation = incarnation + 1, lease_until = clock_timestamp() + $2::interval, drained = NULL
		WHERE db = $1 AND ($3 = 1 OR lease_until IS NULL OR lease_until < clock_timestamp() OR incarnation <= $4) RETURNING incarnation`
	// renewLease does not renew the lease of a host that was drained: other hosts may claim its runs
	// until it takes the lease anew.
	renewLease  = `UPDATE fleet_hosts SET lease_until = clock_timestamp() + $3::interval WHERE db = $1 AND incarnation = $2 AND drained IS NULL`
	needRenewed = `SELECT 1 / count(*) FROM fleet_hosts WHERE db = $1 AND incarnation = $2 AND drained IS NULL`
	endLease    = `UPDATE fleet_hosts SET lease_until = clock_timestamp(), drained = 1 WHERE db = $1 AND incarnation = $2`
	// releaseRun leaves out a run that has begun again since its host looked.
	releaseRun = `UPDATE fleet_runs SET released = 1 WHERE uid = $1 AND host = $2 AND status <> 'running'`
	needFreed  = `SELECT 1 / count(*) FROM fleet_runs WHERE uid = $1 AND host = $2 AND released = 1`
	needLease  = `SELECT 1 / count(*) FROM fleet_hosts WHERE db = $1 AND incarnation = $2`
)

// BeginLease takes the lease of a database for this daemon, and returns the incarnation
// under which the daemon renews it. first is true if the daemon has just started: then it
// takes the lease from the daemon that ran before. Later, it takes the lease only if
// nobody holds it, or if the engine went back to before last, this daemon's incarnation.
func (e *Engine) BeginLease(ctx context.Context, db string, span time.Duration, first bool, last int64) (incarnation int64, err error) {
	b := &pgx.Batch{}
	b.Queue(beginLease, db, span, bit(first), last)
	b.Queue(beat, db) // a transaction that wrote nothing would not wait for the standby
	err = e.send(ctx, b, func(i int, rows pgx.Rows) error { return rows.Scan(&incarnation) })
	if err == nil && incarnation == 0 {
		return 0, fmt.Errorf("%w; nothing is done under it here", ErrLease)
	}
	return incarnation, err
}

// Renew extends the lease, and returns in the same transaction which runs of the database
// other hosts own. It returns ErrMoved if another daemon holds the lease, or if the
// database was drained.
func (e *Engine) Renew(ctx context.Context, db string, incarnation int64, span time.Duration) ([]fleet.Taken, error) {
	b := &pgx.Batch{}
	b.Queue(renewLease, db, incarnation, span)
	b.Queue(needRenewed, db, incarnation)
	asks := b.Len()
	b.Queue(takenRuns, db)
	var taken takenList
	err := e.send(ctx, b, func(i int, rows pgx.Rows) error {
		if i != asks {
			return nil
		}
		return taken.scan(rows)
	})
	return taken.list(), err
}

// Drain ends the lease of a database at once, and lets go of all of its runs.
func (e *Engine) Drain(ctx context.Context, db string, incarnation int64) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	b := &pgx.Batch{}
	b.Queue(endLease, db, incarnation)
	b.Queue(needLease, db, incarnation)
	return e.send(ctx, b, nil)
}

// Release lets go of one run of a database, so that another host may claim it at once.
func (e *Engine) Release(ctx context.Context, db, uid string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	b := &pgx.Batch{}
	b.Queue(releaseRun, uid, db)
	b.Queue(needFreed, uid, db)
	return e.send(ctx, b, nil)
}
