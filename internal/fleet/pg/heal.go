package pg

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// The statements for an engine that went back: it has lost what it had acknowledged, including claims. No host claims
// by itself then, until a person has accepted that.
const (
	// lookBack reads how often the engine has heard from a database before the database registers.
	lookBack = `SELECT m.beats FROM fleet_marks m WHERE m.db = $1`
	noteBack = `UPDATE fleet_hosts SET went_back = clock_timestamp() WHERE db = $1`
	noticed  = `SELECT h.name FROM fleet_hosts h WHERE h.went_back IS NOT NULL ORDER BY h.name`
	// unheard are the hosts that have not registered since.
	unheard = `SELECT o.name FROM fleet_hosts o WHERE o.went_back IS NULL AND ` + livesOn + `
		AND EXISTS (SELECT 1 FROM fleet_hosts x WHERE x.went_back > o.registered_at) ORDER BY o.name`
	acceptBack = `UPDATE fleet_hosts SET went_back = NULL WHERE went_back IS NOT NULL`

	lowerTerms = `SELECT r.uid, r.term, r.host, u.term FROM fleet_runs r JOIN unnest($1::text[], $2::bigint[]) AS u(uid, term) ON r.uid = u.uid
		WHERE r.term < u.term ORDER BY r.uid`
	// putReasserted notes row 0 of the other host's audit log: everything that the other
	// host has of the run is its strand, unless that host knows better.
	putReasserted = `INSERT INTO fleet_claims (run_uid, term, from_db, to_db, at, how, from_n, claimed_by)
		SELECT r.uid, $4::bigint, r.host, $3::text, clock_timestamp(), 're-asserted', 0, 'daemon' FROM fleet_runs r
		WHERE r.uid = $1 AND r.term = $2 ON CONFLICT (run_uid, term, from_db) DO NOTHING`
	// putOutrun notes runs that another host has under the same term or a higher one, after
	// the engine had lost a claim. What this host has of them is a strand.
	putOutrun = `INSERT INTO fleet_claims (run_uid, term, from_db, to_db, at, how, from_n, claimed_by)
		SELECT r.uid, r.term, $3::text, r.host, clock_timestamp(), 'outrun', 0, 'daemon'
		FROM fleet_runs r JOIN unnest($1::text[], $2::bigint[]) AS u(uid, term) ON r.uid = u.uid
		WHERE r.term >= u.term AND r.host <> $3 ON CONFLICT (run_uid, term, from_db) DO NOTHING`
	// putBorn notes runs that the engine has never taken, because other runs have their names.
	putBorn = `INSERT INTO fleet_claims (run_uid, term, from_db, to_db, at, how, from_n, claimed_by)
		SELECT u.uid, u.term, $1::text, o.host, clock_timestamp(), 'born', 0, 'daemon'
		FROM unnest($2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[]) AS u(uid, term, principal, agent, run)
		JOIN fleet_runs o ON o.named = 1 AND o.principal = u.principal AND o.agent = u.agent AND o.run = u.run
		WHERE o.host <> $1 AND NOT u.uid IN (SELECT r.uid FROM fleet_runs r) ON CONFLICT (run_uid, term, from_db) DO NOTHING`
	takeBack = `UPDATE fleet_runs SET host = $3, term = $4, released = NULL, as_of_n = 0 WHERE uid = $1 AND term = $2`
	needBack = `SELECT 1 / count(*) FROM fleet_runs WHERE uid = $1 AND host = $2 AND term = $3`
)

// WentBack reports whether the engine had heard from the database less often, when the
// database registered, than it had said before. beats is what it had said. Each batch
// counts, and each heartbeat of a host that has nothing to ship.
func (e *Engine) WentBack(beats int64) bool { return e.before < beats }

// Heard returns how often the engine had heard from the database when it acknowledged the
// last Register, Ship or Beat of this connection.
func (e *Engine) Heard() int64 { return e.heard }

// NoteBack notes that a host has found that the engine went back. From then on no host claims by itself, until a person
// accepts that.
func (e *Engine) NoteBack(ctx context.Context, db string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	b := &pgx.Batch{}
	b.Queue(noteBack, db)
	return e.send(ctx, b, nil)
}

// Noticed returns the names of the hosts that have found that the engine went back, until a person has accepted that.
func (e *Engine) Noticed(ctx context.Context) ([]string, error) { return e.names(ctx, noticed) }

// AcceptBack lets hosts claim by themselves again.
func (e *Engine) AcceptBack(ctx context.Context) error {
	_, err := e.conn.Exec(ctx, acceptBack)
	return told(err)
}

// names returns the texts that a query finds.
func (e *Engine) names(ctx context.Context, query string, args ...any) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rows, err := e.conn.Query(ctx, query, args...)
	if err != nil {
		return nil, told(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return names, told(err)
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
