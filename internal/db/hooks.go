package db

import (
	"context"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// hooks are what the store does inside the engine's transactions.
type hooks struct{ *core }

// Begin gives the transaction its time and the end of the audit log.
func (h hooks) Begin(t *sqlite.Tx) {
	s := h.core
	tx := &tx{Tx: t, store: s, now: ckpt.At(s.opt.Now()), head: s.head, agents: map[agentKey]*agentRow{}}
	if s.usage.on {
		tx.uses = map[string]*use{}
	}
	if now := s.opt.Trusted(); !now.IsZero() {
		tx.trusted = ckpt.At(now)
	}
	t.Domain = tx
}

// OthersWrote forgets what was known of runs. The very first look only notes
// where things stand.
func (h hooks) OthersWrote(t *sqlite.Tx, first bool) error {
	h.hot.forgetAll()
	if first {
		return nil
	}
	return h.seeForeign(t.Domain.(*tx))
}

// BeforeCommit writes the rows of the audit log.
func (h hooks) BeforeCommit(t *sqlite.Tx) error {
	tx := t.Domain.(*tx)
	if tx.head == h.head {
		return nil
	}
	if err := tx.writeLog(); err != nil {
		return err
	}
	return tx.exec(`UPDATE audit_head SET n = ?, hash = ? WHERE id = 1`, tx.head.n, tx.head.hash)
}

// Committed takes over what the transaction has made.
func (h hooks) Committed(t *sqlite.Tx) {
	tx := t.Domain.(*tx)
	h.setHead(tx.head)
	h.countUses(tx.uses)
}

// RolledBack forgets what the transaction may have changed in memory.
func (h hooks) RolledBack(t *sqlite.Tx) {
	h.hot.forgetAll()
	h.rolledBack(t.Domain.(*tx))
}

// Refused records that an operation was refused, and why.
func (h hooks) Refused(t *sqlite.Tx, sent *sqlite.Op, refusal *ckpt.Error) error {
	o, ours := sent.Do.(*op)
	if !ours || o.entry.Action == "" {
		return nil
	}
	e := o.entry
	e.Outcome, e.Reason = string(refusal.Code), refusal.Message
	if !h.recordable(&e) {
		return nil
	}
	return t.Domain.(*tx).audit(e)
}

// Apart gives operations of owners with little room transactions of their own.
func (h hooks) Apart(batch []*sqlite.Op) (together, alone []*sqlite.Op) {
	if !h.usage.on {
		return batch, nil
	}
	for _, sent := range batch {
		if o, ours := sent.Do.(*op); ours && h.isTight(o) {
			alone = append(alone, sent)
		} else {
			together = append(together, sent)
		}
	}
	return together, alone
}

// Examine looks whether a database that somebody else has written still is the
// one that the writer knows, on a connection that has none of it in memory.
// Whoever copies an older file or something else over it is found out; whoever
// only copied the write-ahead log, with the sqlite3 command, is not in the way.
func (h hooks) Examine(db *sqlx.DB, sound func() error) error {
	var now chainHead
	if err := db.QueryRowx(`SELECT n, hash FROM audit_head`).Scan(&now.n, &now.hash); err != nil {
		return fmt.Errorf("the head of its audit log cannot be read: %w", err)
	}
	if now != h.head {
		return fmt.Errorf("its audit log ends with row %d, not with row %d", now.n, h.head.n)
	}
	if err := sound(); err != nil {
		return err
	}
	var rows, gaps int64
	err := db.QueryRowx(`SELECT count(*), coalesce(sum(prev <> before), 0) FROM
		(SELECT prev, lag(hash, 1, '') OVER (ORDER BY n) AS before FROM audit_log)`).Scan(&rows, &gaps)
	if err != nil {
		return fmt.Errorf("its audit log cannot be read: %w", err)
	}
	if rows != h.head.n || gaps > 0 {
		return fmt.Errorf("its audit log has %d rows of %d, and %d that do not follow the row before", rows, h.head.n, gaps)
	}
	h.othersWrote() // none of these checks looks into the states
	return nil
}

// auditLogEvery is how often the head of the audit log is noted.
const auditLogEvery = time.Hour

// Tick does the store's part of maintenance.
func (h hooks) Tick(ctx context.Context, now time.Time) {
	h.lookAtRoom()
	h.recountStale(ctx)
	h.live.expire(now)
	if now.Sub(h.noted) >= auditLogEvery {
		h.noted = now
		h.NoteHead("hour")
		if err := h.keepUsage(); err != nil {
			h.log.Warn("what was counted for quotas could not be kept", "error", err)
		}
	}
}
