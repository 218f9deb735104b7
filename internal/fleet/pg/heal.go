package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// The statements for an engine that went back: it has lost what it had acknowledged,
// including claims. While it is healed, no host claims by itself.
const (
	// lookBack reads what the engine knows about a database before the database registers:
	// how often it has heard from it, and when it did so last.
	lookBack = `SELECT m.beats, m.seen_at FROM fleet_marks m WHERE m.db = $1`
	putHeal  = `INSERT INTO fleet_heals (db, noticed_at, horizon, until)
		VALUES ($1, clock_timestamp(), $2::timestamptz - $3::interval, clock_timestamp() + $4::interval)
		ON CONFLICT (db) DO UPDATE SET noticed_at = excluded.noticed_at, horizon = excluded.horizon, until = excluded.until`
	// missing are the hosts that claims wait for, since a host noticed that the engine went
	// back. These are the hosts that the engine heard from in the last day of its older
	// copy, and that have neither registered nor noticed it since.
	missing = `FROM fleet_heals x JOIN fleet_hosts o ON o.db <> x.db AND o.registered_at < x.noticed_at
		JOIN fleet_marks f ON f.db = o.db AND f.seen_at > x.horizon
		WHERE x.until > clock_timestamp() AND NOT EXISTS (SELECT 1 FROM fleet_heals e WHERE e.db = o.db AND e.until > clock_timestamp())`
	healing = `SELECT o.name, x.until, clock_timestamp() ` + missing + ` ORDER BY x.until DESC, o.name`

	lowerTerms = `SELECT r.uid, r.term, r.host, u.term FROM fleet_runs r JOIN unnest($1::text[], $2::bigint[]) AS u(uid, term) ON r.uid = u.uid
		WHERE r.term < u.term ORDER BY r.uid`
	// putReasserted notes row 0 of the other host's audit log: everything that the other
	// host has of the run is its strand, unless that host knows better.
	putReasserted = `INSERT INTO fleet_claims (run_uid, term, from_db, to_db, at, how, from_n, claimed_by)
		SELECT r.uid, $4::bigint, r.host, $3::text, clock_timestamp(), 're-asserted', 0, 'daemon' FROM fleet_runs r
		WHERE r.uid = $1 AND r.term = $2 ON CONFLICT (run_uid, term) DO NOTHING`
	// putOutrun notes runs that another host has under the same term or a higher one, after
	// the engine had lost a claim. What this host has of them is a strand.
	putOutrun = `INSERT INTO fleet_rejoined (db, run_uid, from_n, at) SELECT $3, r.uid, 0, clock_timestamp()
		FROM fleet_runs r JOIN unnest($1::text[], $2::bigint[]) AS u(uid, term) ON r.uid = u.uid
		WHERE r.term >= u.term AND r.host <> $3 ON CONFLICT (db, run_uid) DO NOTHING`
	// putBorn notes runs that the engine has never taken, because other runs have their names.
	putBorn = `INSERT INTO fleet_claims (run_uid, term, from_db, to_db, at, how, from_n, claimed_by)
		SELECT u.uid, u.term, $1::text, o.host, clock_timestamp(), 'born', 0, 'daemon'
		FROM unnest($2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[]) AS u(uid, term, principal, agent, run)
		JOIN fleet_runs o ON o.named = 1 AND o.principal = u.principal AND o.agent = u.agent AND o.run = u.run
		WHERE o.host <> $1 AND NOT u.uid IN (SELECT r.uid FROM fleet_runs r) ON CONFLICT (run_uid, term) DO NOTHING`
	takeBack = `UPDATE fleet_runs SET host = $3, term = $4, released = NULL, as_of_n = 0 WHERE uid = $1 AND term = $2`
	needBack = `SELECT 1 / count(*) FROM fleet_runs WHERE uid = $1 AND host = $2 AND term = $3`
)

// before is what the engine knew about a database when the database registered.
type before struct {
	beats int64
	seen  *time.Time // by the engine's clock; nil for a database that the engine did not know
}

func (e *Engine) lookBack(ctx context.Context, db string) (b before, err error) {
	rows, err := e.conn.Query(ctx, lookBack, db)
	if err != nil {
		return b, told(err)
	}
	_, err = pgx.ForEachRow(rows, []any{&b.beats, &b.seen}, func() error { return nil })
	return b, told(err)
}

// WentBack reports whether the engine had heard from the database less often, when the
// database registered, than it had said before. beats is what it had said. Each batch
// counts, and each heartbeat of a host that has nothing to ship.
func (e *Engine) WentBack(beats int64) bool { return e.before.beats < beats }

// Heard returns how often the engine had heard from the database when it acknowledged the
// last Register, Ship or Beat of this connection.
func (e *Engine) Heard() int64 { return e.heard }

// Heal notes that a host, which has just registered, has found that the engine went back.
// From then on no host claims by itself until all hosts of the last day are back, or the
// wait is over.
func (e *Engine) Heal(ctx context.Context, db string, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	seen := time.Time{}
	if e.before.seen != nil {
		seen = *e.before.seen
	}
	b := &pgx.Batch{}
	b.Queue(putHeal, db, seen, 24*time.Hour, wait)
	b.Queue(beat, db) // a transaction that wrote nothing would not wait for the standby
	return e.send(ctx, b, nil)
}

// Healing returns the names of the hosts that have not registered since the engine went
// back, and for how long claims wait for them. It returns no names if claims are allowed
// as usual.
func (e *Engine) Healing(ctx context.Context) (hosts []string, left time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rows, err := e.conn.Query(ctx, healing)
	if err != nil {
		return nil, 0, told(err)
	}
	var name string
	var until, now time.Time
	named := map[string]bool{}
	_, err = pgx.ForEachRow(rows, []any{&name, &until, &now}, func() error {
		if !named[name] {
			named[name], hosts = true, append(hosts, name)
		}
		left = max(left, until.Sub(now))
		return nil
	})
	return hosts, left, told(err)
}

// Reassert makes a database the owner again of runs whose claims the engine has lost:
// those that the engine has under a lower term than this host was given. It returns their
// uids. Runs that other hosts were given since no longer belong to this host.
func (e *Engine) Reassert(ctx context.Context, db string, runs []fleet.RunTerm) (uids []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	list, terms := listsOf(runs)
	rows, err := e.conn.Query(ctx, lowerTerms, list, terms)
	if err != nil {
		return nil, told(err)
	}
	type lower struct {
		UID  string
		Has  int64
		Host string
		Term int64
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[lower])
	if err != nil {
		return nil, told(err)
	}
	if err := e.Outrun(ctx, db, runs); err != nil {
		return nil, err
	}
	for _, r := range all {
		b := &pgx.Batch{}
		b.Queue(lockMark, r.Host, nil, 1)
		b.Queue(putReasserted, r.UID, r.Has, db, r.Term)
		b.Queue(takeBack, r.UID, r.Has, db, r.Term)
		b.Queue(needBack, r.UID, db, r.Term)
		b.Queue(beat, db) // a transaction that wrote nothing would not wait for the standby
		if err := e.send(ctx, b, nil); err != nil {
			return uids, err
		}
		uids = append(uids, r.UID)
	}
	return uids, nil
}

// Outrun notes which of these runs other hosts have now under the same term or a higher
// one, although no claim says so, because the engine has lost it. From then on, Taken
// returns them.
func (e *Engine) Outrun(ctx context.Context, db string, runs []fleet.RunTerm) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	list, terms := listsOf(runs)
	b := &pgx.Batch{}
	b.Queue(putOutrun, list, terms, db)
	b.Queue(beat, db) // a transaction that wrote nothing would not wait for the standby
	return e.send(ctx, b, nil)
}

// Unborn notes which of these runs the engine has never taken, because other hosts have runs of
// their names. From then on, Taken returns them.
func (e *Engine) Unborn(ctx context.Context, db string, runs []fleet.Run) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var uid, principal, agent, run []string
	var term []int64
	for i := range runs {
		r := &runs[i]
		uid, term, principal, agent, run = append(uid, r.UID), append(term, r.Term), append(principal, r.Principal), append(agent, r.Agent), append(run, r.Name)
	}
	b := &pgx.Batch{}
	b.Queue(putBorn, db, uid, term, principal, agent, run)
	b.Queue(beat, db) // a transaction that wrote nothing would not wait for the standby
	return e.send(ctx, b, nil)
}

func listsOf(runs []fleet.RunTerm) (uids []string, terms []int64) {
	uids, terms = []string{}, []int64{}
	for _, r := range runs {
		uids, terms = append(uids, r.UID), append(terms, r.Term)
	}
	return uids, terms
}
