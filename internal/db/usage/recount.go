package usage

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/jmoiron/sqlx"
)

// usageKey is the key under which the counts are kept between two daemons.
const usageKey = "usage"

// keptUsage is the counts up to a row of the audit log.
type keptUsage struct {
	N      int64               `json:"n"`
	Owners map[string][2]int64 `json:"owners"` // rows and log
}

// Load takes over what the last daemon has counted. If there are no such counts, it counts
// everything. It always counts the rows of the audit log that came after them. If there are such
// rows, the owners' other bytes are counted again soon.
func (m *Meter) Load(ctx context.Context, db *sqlx.DB) error {
	m.room.Store(-1)
	if !m.On() {
		return nil
	}
	m.owners = map[string]*owned{}
	var text string
	var kept keptUsage
	err := db.GetContext(ctx, &text, `SELECT value FROM meta WHERE key = ?`, usageKey)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	known := err == nil && json.Unmarshal([]byte(text), &kept) == nil && kept.Owners != nil
	if !known {
		kept = keptUsage{}
	}
	for owner, of := range kept.Owners {
		*m.of(owner) = owned{rows: of[0], log: of[1]}
	}
	return m.loadRest(ctx, db, kept.N, known)
}

// loadRest counts what the kept counts do not include.
func (m *Meter) loadRest(ctx context.Context, db *sqlx.DB, after int64, known bool) error {
	var rows []struct {
		Owner string `db:"owner"`
		Bytes int64  `db:"bytes"`
	}
	err := db.SelectContext(ctx, &rows, `SELECT owner, sum(bytes) AS bytes FROM (`+logRows+`) GROUP BY owner`, after, m.Daemon)
	if err != nil {
		return err
	}
	for _, row := range rows {
		o := m.of(row.Owner)
		o.log += row.Bytes
		o.stale = true
	}
	if known {
		return nil
	}
	var owners []string
	if err := db.SelectContext(ctx, &owners, `SELECT DISTINCT owner FROM agents`); err != nil {
		return err
	}
	for _, owner := range owners {
		begin := time.Now()
		bytes, err := StoredBy(ctx, db, owner)
		if err != nil {
			return err
		}
		o := m.of(owner)
		o.rows, o.counted, o.took, o.stale = bytes, time.Now(), time.Since(begin), false
	}
	return nil
}

// Keep stores the counts up to a row of the audit log.
func (m *Meter) Keep(tx *sqlite.Tx, t *Tally, n int64) error {
	kept := m.kept(t, n)
	if kept.N == 0 {
		return tx.Exec(`DELETE FROM meta WHERE key = ?`, usageKey)
	}
	text, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	return tx.Insert(`INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value`, usageKey, string(text))
}

// kept returns the counts, with what other operations have stored in the same transaction.
func (m *Meter) kept(t *Tally, n int64) keptUsage {
	kept := keptUsage{N: n, Owners: map[string][2]int64{}}
	m.mu.Lock()
	defer m.mu.Unlock()
	for owner, o := range m.owners {
		if !o.stale {
			kept.Owners[owner] = [2]int64{o.rows, o.log}
		} else {
			kept.N = 0 // it is counted again
		}
	}
	for owner, u := range t.uses {
		of := kept.Owners[owner]
		kept.Owners[owner] = [2]int64{of[0] + u.rows, of[1] + u.log}
	}
	return kept
}

// recountEvery bounds how often an owner's bytes are counted from the tables: only after this many
// times the duration of the last count, and not within a second.
const recountEvery = 50

// RecountIfTight counts an owner's bytes before an operation of a size may be refused.
func (m *Meter) RecountIfTight(owner string, size int64) {
	if m.Tight(owner, size) && m.recountDue(owner) {
		m.RecountAfter(context.Background(), owner)
	}
}

// recountDue says whether to count an owner's bytes. Other callers get false for a while.
func (m *Meter) recountDue(owner string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, now := m.of(owner), time.Now()
	if now.Sub(o.counted) < max(time.Second, recountEvery*o.took) {
		return false
	}
	o.counted = now
	return true
}

// Recount counts from the tables. Bytes that are added meanwhile may count twice until the next
// count.
func (m *Meter) Recount(ctx context.Context, owner string) error {
	begin := time.Now()
	m.mu.Lock()
	before := m.of(owner).added
	m.mu.Unlock()
	var bytes int64
	err := m.Reading(ctx, func(q *sqlx.Tx) (err error) {
		bytes, err = StoredBy(ctx, q, owner)
		return err
	})
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.of(owner)
	o.rows, o.stale = bytes+o.added-before, false
	o.counted, o.took = time.Now(), time.Since(begin)
	return nil
}

// RecountAfter counts again after so much was removed that a count is worthwhile.
func (m *Meter) RecountAfter(ctx context.Context, owner string) {
	if !m.On() {
		return
	}
	if err := m.Recount(ctx, owner); err != nil {
		m.Log.Warn("the stored bytes of an owner could not be counted", "owner", owner, "error", err)
	}
}

// RecountStale counts one of the owners whose count is from before a fault.
func (m *Meter) RecountStale(ctx context.Context) {
	if !m.On() {
		return
	}
	stale := ""
	m.mu.Lock()
	for owner, o := range m.owners {
		if o.stale {
			stale = owner
			break
		}
	}
	m.mu.Unlock()
	if stale != "" {
		m.RecountAfter(ctx, stale)
	}
}
