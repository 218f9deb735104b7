package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/db/usage"
)

// hooks implement the engine's hooks for the store.
type hooks struct{ *Core }

// Begin gives the transaction its time and the end of the audit log.
func (h hooks) Begin(t *sqlite.Tx) {
	s := h.Core
	tx := &Tx{Tx: t, Store: s, Now: ckpt.At(s.Opt.Now()), Head: s.Head, acts: s.acts[:0], agents: map[AgentKey]*AgentRow{}, Tally: s.Usage.Tally()}
	if now := s.Opt.Trusted(); !now.IsZero() {
		tx.Trusted = ckpt.At(now)
	}
	t.Domain = tx
}

// OthersWrote forgets what was known of runs. The very first call only notes the current state.
func (h hooks) OthersWrote(t *sqlite.Tx, first bool) error {
	h.RunCache.ForgetAll()
	h.names.forget()
	if first {
		return nil
	}
	return h.seeForeign(t.Domain.(*Tx))
}

// uuidLength is the length of a UUID as text.
const uuidLength = 36

// Prepared examines a statement once.
func (h hooks) Prepared(query string, tables []string) any {
	look := usage.Look(query)
	switch query {
	case takeRow: // the bytes of the removed checkpoint are subtracted apart
		look = usage.Inserts(int64(len(ckpt.KindRoutine)))
	case insertNewID: // the id as text is only looked for
		look = usage.Inserts(-uuidLength)
	}
	return &statement{look, forgets(query, tables)}
}

// Runs counts what a statement stores, and forgets what the statement makes stale.
func (h hooks) Runs(t *sqlite.Tx, kept any, args []any) {
	s := kept.(*statement)
	tx, ours := t.Domain.(*Tx)
	switch {
	case !s.forgets:
	case ours && tx.touches != nil:
		h.RunCache.Forget(tx.touches)
	default:
		h.RunCache.ForgetAll()
		h.names.lives = nil
	}
	if ours {
		tx.Tally.Count(s.Statement, args)
	}
}

// BeforeCommit writes the rows of the audit log.
func (h hooks) BeforeCommit(t *sqlite.Tx) error {
	tx := t.Domain.(*Tx)
	if tx.Head.N == h.Head.N {
		return nil
	}
	if err := tx.writeLog(); err != nil {
		return err
	}
	return tx.Exec(`UPDATE audit_head SET n = ?, hash = ? WHERE id = 1`, tx.Head.N, tx.Head.Hash)
}

// Committed takes over the transaction's results.
func (h hooks) Committed(t *sqlite.Tx) {
	tx := t.Domain.(*Tx)
	h.setHead(tx.Head)
	h.Commits.Add(1)
	h.feed.tell(tx.changed)
	h.Usage.Commit(&tx.Tally)
}

// RolledBack forgets what the transaction may have changed in memory.
func (h hooks) RolledBack(t *sqlite.Tx) {
	h.RunCache.ForgetAll()
	h.names.forget()
	h.Core.RolledBack(t.Domain.(*Tx))
}

// Refused records that an operation was refused, and why.
func (h hooks) Refused(t *sqlite.Tx, sent *sqlite.Op, refusal *ckpt.Error) error {
	o, ours := sent.Do.(*Op)
	if !ours || o.Entry.Action == "" {
		return nil
	}
	e := o.Entry
	e.Outcome, e.Reason = string(refusal.Code), refusal.Message
	if !h.recordable(&e) {
		return nil
	}
	return t.Domain.(*Tx).Audit(e)
}

// Apart gives operations of owners that are near their quota transactions of their own.
func (h hooks) Apart(batch []*sqlite.Op) (together, alone []*sqlite.Op) {
	if !h.Usage.On() {
		return batch, nil
	}
	for _, sent := range batch {
		if o, ours := sent.Do.(*Op); ours && h.Usage.Tight(o.Entry.Owner, o.Size) {
			alone = append(alone, sent)
		} else {
			together = append(together, sent)
		}
	}
	return together, alone
}

// Examine checks whether a database that another program has written is still the one that the
// writer knows. It uses a connection that has nothing of the database in memory. If a program has
// copied an older or another file over the database, Examine finds that out. If a program has only
// copied the write-ahead log into the database, as the sqlite3 command does, Examine accepts the
// file.
func (h hooks) Examine(db *sqlx.DB, sound func() error) error {
	var now ChainHead
	if err := db.QueryRowx(`SELECT n, hash FROM audit_head`).Scan(&now.N, &now.Hash); err != nil {
		return fmt.Errorf("the head of its audit log cannot be read: %w", err)
	}
	if now != h.Head {
		return fmt.Errorf("its audit log ends with row %d, not with row %d", now.N, h.Head.N)
	}
	if err := sound(); err != nil {
		return err
	}
	var rows int64
	if err := db.QueryRowx(`SELECT (SELECT count(*) FROM acts) + (SELECT coalesce(sum(removed), 0) FROM audit_archives)`).Scan(&rows); err != nil {
		return fmt.Errorf("its audit log cannot be read: %w", err)
	}
	if rows != h.Head.N {
		return fmt.Errorf("its audit log has %d rows of %d", rows, h.Head.N)
	}
	broken, err := h.brokenLink(db)
	if err != nil {
		return fmt.Errorf("its audit log cannot be read: %w", err)
	}
	if broken > 0 {
		return fmt.Errorf("row %d of its audit log was changed", broken)
	}
	h.othersWrote() // none of these checks looks into the states
	return nil
}

// AuditLogEvery is how often the head of the audit log is noted.
const AuditLogEvery = time.Hour

// Tick does the store's part of maintenance.
func (h hooks) Tick(ctx context.Context, now time.Time) {
	h.lookAtRoom()
	h.Usage.RecountStale(ctx)
	h.States.Expire(now)
	h.recordReads(false)
	if now.Sub(h.noted) >= AuditLogEvery {
		h.noted = now
		h.NoteHead("hour")
		if err := h.keepUsage(); err != nil {
			h.Log.Warn("the counts for quotas could not be saved", "error", err)
		}
	}
}
