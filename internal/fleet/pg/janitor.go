package pg

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// The statements of the janitor. One host holds the row of fleet_janitor, by the engine's
// clock. Each transaction of the janitor takes the row first, so no two hosts clean at once.
const (
	holdJanitor = `INSERT INTO fleet_janitor (key, db, until)
		VALUES ('janitor', $1, clock_timestamp() + $2::interval)
		ON CONFLICT (key) DO UPDATE SET db = excluded.db, until = excluded.until
		WHERE fleet_janitor.db = excluded.db OR fleet_janitor.until < clock_timestamp()`
	needJanitor = `SELECT 1 / count(*) FROM fleet_janitor
		WHERE key = 'janitor' AND db = $1 AND until > clock_timestamp()`

	// quiet selects hosts whose lease has been over for so long, and from which the engine has
	// not heard for so long.
	quiet = `h.restored_by IS NULL AND m.seen_at + $2::interval < clock_timestamp()
		AND (h.lease_until IS NULL OR h.lease_until + $2::interval < clock_timestamp())
		AND NOT EXISTS (SELECT 1 ` + missing + `)`
	quietHosts = `SELECT h.db, h.name, m.mark_n, c.at, m.seen_at, clock_timestamp()
		FROM fleet_hosts h JOIN fleet_marks m ON m.db = h.db
		JOIN fleet_audit c ON c.db = h.db AND c.n = m.mark_n WHERE h.db <> $1 AND ` + quiet + ` ORDER BY h.db`
	needQuiet = `SELECT 1 / count(*) FROM fleet_hosts h JOIN fleet_marks m ON m.db = h.db WHERE h.db = $1 AND ` + quiet
	// markCleaned holds up the batches of the host. If its daemon was only paused, the next
	// batch of that daemon fails, because what the daemon remembers about the engine is no
	// longer true.
	markCleaned = `UPDATE fleet_marks SET cleaned = coalesce(cleaned, 0) + 1 WHERE db = $1`
	needJudged  = `SELECT 1 / count(*) FROM fleet_runs r JOIN fleet_marks m ON m.db = r.host
		WHERE r.uid = $1 AND r.host = $2 AND r.term = $3 AND m.mark_n = $4 AND r.as_of_n > 0`

	// disputed are runs that were claimed, and runs that a database which joined again has
	// copies of. Former owners ask for them, because they may have strands.
	disputed = `SELECT c.run_uid FROM fleet_claims c JOIN fleet_runs r ON r.uid = c.run_uid WHERE r.host = $1
		UNION ALL SELECT j.run_uid FROM fleet_rejoined j JOIN fleet_runs r ON r.uid = j.run_uid
		WHERE r.host = $1`

	judgedCheckpoints = `SELECT c.db, c.term, c.n, c.id, c.seq, c.kind, c.suspect, c.sha, c.size, c.pieces, NULL::bytea,
		c.doc, coalesce(c.key_id, '') FROM fleet_checkpoints c WHERE c.run_uid = $1 ORDER BY c.term, c.seq`
	judgedRows = `SELECT c.kind, c.key, c.ord, c.doc, coalesce(c.key_id, '') FROM fleet_rows c
		WHERE c.run_uid = $1 AND c.kind IN ('operation', 'prompt') ORDER BY c.kind, c.ord, c.key`

	cleanCheckpoints = `DELETE FROM fleet_checkpoints WHERE run_uid = $1 AND db = $2 AND n = ANY($3::bigint[])`
	cleanSegments    = `DELETE FROM fleet_segments WHERE run_uid = $1 AND db = $2 AND NOT id = ANY($3::bigint[])`
	cleanedRun       = `SELECT r.uid FROM fleet_runs r WHERE r.uid = $1 AND r.host = $2`

	putCleaning = `INSERT INTO fleet_cleanings (id, run_uid, host, by_db, at, owner, agent, run, dropped, doc, why)
		VALUES ($1, $2, $3, $4, clock_timestamp(), $5, $6, $7, $8, $9, $10)`
	unnoted = `SELECT c.id, c.host, coalesce(h.name, ''), c.owner, c.agent, c.run, c.run_uid, c.dropped, c.doc, c.why
		FROM fleet_cleanings c LEFT JOIN fleet_hosts h ON h.db = c.host
		WHERE c.by_db = $1 AND c.noted IS NULL ORDER BY c.at, c.id`
	noteCleaning = `UPDATE fleet_cleanings SET noted = 1 WHERE id = $1 AND by_db = $2`

	cleanedRuns = `SELECT c.run_uid FROM fleet_cleanings c JOIN fleet_runs r ON r.uid = c.run_uid
		WHERE c.host = $1 AND c.answered IS NULL AND r.host = $1 AND c.run_uid = ANY($2::text[])`
	answerCleanings = `UPDATE fleet_cleanings SET answered = 1 WHERE host = $1 AND answered IS NULL`

	engineTime = `SELECT clock_timestamp()`
)

// ErrNotQuiet means that the janitor must not clean a run: the engine has heard from its
// host, the run has another owner or has changed, or another host is the janitor.
var ErrNotQuiet = errors.New("the run is not to be cleaned any more: its host or another one was faster")

// Now returns the time by the engine's clock.
func (e *Engine) Now(ctx context.Context) (now time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = e.conn.QueryRow(ctx, engineTime).Scan(&now)
	return now, told(err)
}

// HoldJanitor makes a host the janitor, or keeps it the janitor. It returns false if another
// host is the janitor.
func (e *Engine) HoldJanitor(ctx context.Context, j fleet.Janitor) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	b := &pgx.Batch{}
	janitor(b, j)
	b.Queue(beat, j.DB) // a transaction that wrote nothing would not wait for the standby
	err := e.send(ctx, b, nil)
	if errors.Is(err, ErrMoved) {
		return false, nil
	}
	return err == nil, err
}

// janitor makes a transaction fail if the host is not the janitor, or does not hold its own
// lease.
func janitor(b *pgx.Batch, j fleet.Janitor) {
	b.Queue(holdJanitor, j.DB, j.Span)
	b.Queue(needJanitor, j.DB)
	b.Queue(needLease, j.DB, j.Incarnation)
}

// QuietHosts lists the hosts that are lost: for j.After their leases have been over, and the
// engine has not heard from them. It lists none while an engine that went back is healed.
func (e *Engine) QuietHosts(ctx context.Context, j fleet.Janitor) ([]fleet.QuietHost, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rows, err := e.conn.Query(ctx, quietHosts, j.DB, j.After)
	if err != nil {
		return nil, told(err)
	}
	var all []fleet.QuietHost
	var h fleet.QuietHost
	var at int64
	var seen, now time.Time
	_, err = pgx.ForEachRow(rows, []any{&h.DB, &h.Name, &h.MarkN, &at, &seen, &now}, func() error {
		h.At, h.Silent = time.UnixMilli(at), now.Sub(seen)
		all = append(all, h)
		return nil
	})
	return all, told(err)
}

// Disputed returns the uids of the runs of a host that former owners ask for.
func (e *Engine) Disputed(ctx context.Context, db string) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rows, err := e.conn.Query(ctx, disputed, db)
	if err != nil {
		return nil, told(err)
	}
	uids := map[string]bool{}
	var uid string
	_, err = pgx.ForEachRow(rows, []any{&uid}, func() error { uids[uid] = true; return nil })
	return uids, told(err)
}

// FillJudged reads what retention must know about a run: its checkpoints without their
// states, its operations and its prompts.
func (e *Engine) FillJudged(ctx context.Context, r *fleet.LostRun) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if r.DB, err = e.fillFrom(ctx, judgedCheckpoints, r); err != nil {
		return err
	}
	return e.fillRows(ctx, judgedRows, r)
}

// Clean removes the part of a run that a cleaning names, in one transaction. It returns
// ErrNotQuiet and changes nothing if the host of the run is back, the run has changed, or
// another host is the janitor.
func (e *Engine) Clean(ctx context.Context, j fleet.Janitor, c *fleet.Cleaning) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	doc, err := json.Marshal(c.Gone)
	if err != nil {
		return err
	}
	b := &pgx.Batch{}
	janitor(b, j)
	b.Queue(lockHost, c.Host.DB)
	b.Queue(markCleaned, c.Host.DB)
	b.Queue(needQuiet, c.Host.DB, j.After)
	b.Queue(needJudged, c.Run.UID, c.Host.DB, c.Run.Term, c.Host.MarkN)
	if err := cleanings(b, c); err != nil {
		return err
	}
	b.Queue(putCleaning, c.ID, c.Run.UID, c.Host.DB, j.DB, c.Owner, c.Agent, c.Run.Name, bit(c.Drop),
		string(doc), c.Why)
	b.Queue(beat, j.DB)
	err = e.send(ctx, b, nil)
	if errors.Is(err, ErrMoved) {
		err = fmt.Errorf("%w: run %s of agent %s", ErrNotQuiet, c.Run.Name, c.Agent)
	}
	return err
}

// cleanings queues the removals. A segment is removed with the last checkpoint that needs
// it.
func cleanings(b *pgx.Batch, c *fleet.Cleaning) error {
	if c.Drop {
		for _, drop := range dropsOf(cleanedRun) {
			b.Queue(drop, c.Run.UID, c.Host.DB)
		}
		return nil
	}
	gone, kept := []int64{}, []int64{}
	goes := map[int64]bool{}
	for _, g := range c.Gone {
		gone, goes[g.N] = append(gone, g.N), true
	}
	for i := range c.Run.Checkpoints {
		of := &c.Run.Checkpoints[i]
		if goes[of.N] || of.Pieces == nil {
			continue
		}
		var list [][3]int64
		if err := json.Unmarshal([]byte(*of.Pieces), &list); err != nil {
			return fmt.Errorf("the pieces of checkpoint %s cannot be read: %w", of.ID, err)
		}
		for _, p := range list {
			kept = append(kept, p[0])
		}
	}
	b.Queue(cleanCheckpoints, c.Run.UID, c.Run.DB, gone)
	b.Queue(cleanSegments, c.Run.UID, c.Run.DB, kept)
	return nil
}

// Unnoted lists what a host has cleaned but has not yet noted in its audit log.
func (e *Engine) Unnoted(ctx context.Context, db string) ([]fleet.CleaningNoted, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rows, err := e.conn.Query(ctx, unnoted, db)
	if err != nil {
		return nil, told(err)
	}
	var all []fleet.CleaningNoted
	var c fleet.CleaningNoted
	var dropped int64
	into := []any{&c.ID, &c.Host, &c.Name, &c.Owner, &c.Agent, &c.Run, &c.UID, &dropped, &c.Doc, &c.Why}
	_, err = pgx.ForEachRow(rows, into, func() error {
		c.Drop = dropped == 1
		all = append(all, c)
		return nil
	})
	return all, told(err)
}

// Noted marks a cleaning as noted in a host's audit log.
func (e *Engine) Noted(ctx context.Context, db, id string) error {
	return e.write(ctx, db, noteCleaning, id, db)
}

// Cleaned returns those of the runs that the janitor has cleaned while their host was away,
// and that the host still owns.
func (e *Engine) Cleaned(ctx context.Context, db string, runs []fleet.Name) ([]fleet.Name, error) {
	if e.cleaned == 0 {
		return nil, nil
	}
	return e.pick(ctx, runs, cleanedRuns, db, uidsOf(runs))
}

// AnswerCleanings notes that a host has shipped again what was cleaned while it was away.
func (e *Engine) AnswerCleanings(ctx context.Context, db string) error {
	if e.cleaned == 0 {
		return nil
	}
	return e.write(ctx, db, answerCleanings, db)
}

// write runs one statement for a host.
func (e *Engine) write(ctx context.Context, db, statement string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	b := &pgx.Batch{}
	b.Queue(statement, args...)
	b.Queue(beat, db) // a transaction that wrote nothing would not wait for the standby
	return e.send(ctx, b, nil)
}
