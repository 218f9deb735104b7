package pg

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// ErrTaken means that a claim came too late: another host has claimed the run, or the engine
// has heard from the owner since the claimant looked.
var ErrTaken = errors.New("the run has another owner by now, or its owner was heard of since")

// The statements of a claim, in their order. The first locks the former owner's lease. The
// third locks its mark, as the first statement of the owner's batches does: such a batch is
// either committed before the claim, or finds the new term. All later statements check the run
// and its term.
const (
	// lockHost holds up the former owner's renewals until the claim is decided. needGround checks
	// the ground of the claim by the engine's clock.
	lockHost   = `UPDATE fleet_hosts SET incarnation = incarnation WHERE db = $1`
	needGround = `SELECT 1 / count(*) FROM fleet_hosts WHERE db = $1 AND ($2 IN ('forced', 'released') OR $2 = 'drained' AND drained = 1
		OR $2 = 'silent' AND lease_until IS NULL OR $2 = 'lease' AND lease_until + $3::interval < clock_timestamp())
		AND ($2 = 'forced' OR NOT EXISTS (SELECT 1 FROM fleet_hosts o WHERE o.went_back IS NOT NULL))`
	lockMark = `UPDATE fleet_marks SET beats = beats + 1 WHERE db = $1 AND ($3 = 1 OR seen_at = $2)`
	needSeen = `SELECT 1 / count(*) FROM fleet_marks WHERE db = $1 AND ($3 = 1 OR seen_at = $2)`
	putClaim = `INSERT INTO fleet_claims (run_uid, term, from_db, to_db, at, how, from_n, claimed_by, from_hash)
		SELECT r.uid, r.term + 1, r.host, $4::text, clock_timestamp(), $5::text, m.mark_n, $6::text, m.mark_hash FROM fleet_runs r
		JOIN fleet_marks m ON m.db = r.host
		WHERE r.uid = $1 AND r.term = $2 AND r.host = $3 ON CONFLICT (run_uid, term, from_db) DO NOTHING`
	// takeRun sets as_of_n to 0 until the new owner ships the run: before that, no row of the new
	// owner's audit log says anything about it.
	takeRun = `UPDATE fleet_runs SET host = $4, term = term + 1, released = NULL, as_of_n = 0, named = named * $6 WHERE uid = $1 AND term = $2 AND host = $3
		AND ($5 <> 'released' OR released = 1)`
	needRun = `SELECT 1 / count(*) FROM fleet_runs WHERE uid = $1 AND term = $2 + 1 AND host = $3`

	findRuns = `SELECT r.uid, r.host, coalesce(h.name, ''), r.owner, r.agent, r.run, r.status, r.term, r.seq, r.updated_at, r.as_of_n, r.doc,
		coalesce(r.principal, ''), coalesce(r.key_id, ''), r.agent_uid, coalesce(a.doc, ''), m.seen_at, clock_timestamp(),
		h.lease_until, coalesce(h.drained, 0), coalesce(r.released, 0), coalesce(r.named, 0), coalesce(a.takeover, ''),
		coalesce(c.how, ''), coalesce(c.from_db, ''), coalesce(f.name, c.from_db, ''), c.at, o.seen_at
		FROM fleet_runs r JOIN fleet_marks m ON m.db = r.host LEFT JOIN fleet_hosts h ON h.db = r.host LEFT JOIN fleet_agents a ON a.uid = r.agent_uid
		LEFT JOIN fleet_claims c ON c.run_uid = r.uid AND c.term = r.term AND c.to_db = r.host AND c.how <> 'outrun'
		LEFT JOIN fleet_hosts f ON f.db = c.from_db LEFT JOIN fleet_marks o ON o.db = c.from_db
		WHERE r.agent = $1 AND ($2 = '' OR r.run = $2) AND ($3 = '' OR r.owner = $3) AND ($4 = '' OR h.name = $4 OR r.host = $4) AND r.status <> ''
		AND ($5 = '' OR r.uid = $5) AND ($6 = '' OR a.takeover = $6) AND ($7 = '' OR r.principal = $7 OR $8 <> '' AND r.owner = $8)
		ORDER BY coalesce(r.named, 0) DESC, r.updated_at DESC, r.uid LIMIT 20`

	// takenRuns also returns runs that no host has any more, because the last owner has removed
	// them. The former owner is still fenced, so that no act of the new owner is done twice.
	takenRuns = `SELECT c.run_uid, c.term, c.to_db, coalesce(h.name, c.to_db), coalesce(c.from_n, 0), c.how, c.at
		FROM fleet_claims c LEFT JOIN fleet_runs r ON r.uid = c.run_uid LEFT JOIN fleet_hosts h ON h.db = c.to_db
		WHERE c.from_db = $1 AND (r.host <> $1 OR r.uid IS NULL AND NOT EXISTS (
			SELECT 1 FROM fleet_claims e WHERE e.run_uid = c.run_uid AND e.to_db = $1 AND e.term > c.term)) ORDER BY 1, 2 DESC`
)

// Find lists the runs that fit a claim request, the most recently changed first, at most 20.
func (e *Engine) Find(ctx context.Context, q fleet.ClaimRequest) ([]fleet.Claimable, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rows, err := e.conn.Query(ctx, findRuns, q.Agent, q.Run, q.Owner, q.Host, q.UID, q.Takeover, q.Principal, q.OrOwner)
	if err != nil {
		return nil, told(err)
	}
	var all []fleet.Claimable
	var c fleet.Claimable
	var seen, now time.Time
	var until, claimed, former *time.Time
	var drained, released, named int64
	_, err = pgx.ForEachRow(rows, []any{&c.UID, &c.DB, &c.Host, &c.Owner, &c.Agent, &c.Run, &c.Status, &c.Term, &c.Seq, &c.UpdatedAt, &c.AsOf, &c.Doc,
		&c.Principal, &c.KeyID, &c.AgentUID, &c.AgentDoc, &seen, &now, &until, &drained, &released, &named, &c.Takeover, &c.How, &c.FromDB, &c.FromHost, &claimed, &former}, func() error {
		c.Lease, c.Drained, c.Released, c.Named = secondsFrom(now, until), drained == 1, released == 1, named == 1
		c.Seen, c.SeenAgo, c.FromSilent = seen, now.Sub(seen).Seconds(), 0
		for _, since := range []*time.Time{claimed, former} {
			if since != nil {
				c.FromSilent = max(c.FromSilent, now.Sub(*since).Seconds())
			}
		}
		all = append(all, c)
		return nil
	})
	return all, told(err)
}

// Claim makes a host the owner of a run, and returns the run's new term. It returns ErrTaken if
// another host was faster. After ErrUnknown, Find tells who owns the run.
func (e *Engine) Claim(ctx context.Context, c fleet.Claim) (term int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	anyTime := bit(c.Ground != fleet.GroundSilent) // silence alone proves that a host is gone only if it holds no lease
	b := &pgx.Batch{}
	b.Queue(lockHost, c.Run.DB)
	b.Queue(needGround, c.Run.DB, string(c.Ground), c.Grace)
	b.Queue(lockMark, c.Run.DB, c.Run.Seen, anyTime)
	b.Queue(needSeen, c.Run.DB, c.Run.Seen, anyTime)
	b.Queue(putClaim, c.Run.UID, c.Run.Term, c.Run.DB, c.To, c.Ground.How(), c.By)
	b.Queue(takeRun, c.Run.UID, c.Run.Term, c.Run.DB, c.To, string(c.Ground), bit(!c.Anew))
	b.Queue(needRun, c.Run.UID, c.Run.Term, c.To)
	b.Queue(beat, c.To) // a transaction that wrote nothing would not wait for the standby
	if err := e.send(ctx, b, nil); err != nil {
		if errors.Is(err, ErrMoved) {
			err = fmt.Errorf("%w: run %s of agent %s", ErrTaken, c.Run.Run, c.Run.Agent)
		}
		return 0, err
	}
	return c.Run.Term + 1, nil
}

// Taken lists the runs of a database that other hosts own now, or that the engine gave to
// another host last, with the newest claim of each.
func (e *Engine) Taken(ctx context.Context, db string) ([]fleet.Taken, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rows, err := e.conn.Query(ctx, takenRuns, db)
	if err != nil {
		return nil, told(err)
	}
	defer rows.Close()
	var taken takenList
	for rows.Next() {
		if err := taken.scan(rows); err != nil {
			return nil, told(err)
		}
	}
	return taken.list(), told(rows.Err())
}

// takenList collects the rows of takenRuns: the newest claim of each run.
type takenList []fleet.Taken

func (l *takenList) scan(rows pgx.Rows) error {
	var t fleet.Taken
	var at time.Time
	if err := rows.Scan(&t.UID, &t.Term, &t.To, &t.Host, &t.From, &t.How, &at); err != nil {
		return err
	}
	t.At = at.UTC().Format("2006-01-02T15:04:05.000Z")
	if n := len(*l); n == 0 || (*l)[n-1].UID != t.UID {
		*l = append(*l, t)
	}
	return nil
}

// list returns the list, never nil.
func (l takenList) list() []fleet.Taken { return append([]fleet.Taken{}, l...) }
