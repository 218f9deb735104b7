package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// engineHooks are what the store does in the engine's transactions.
func (s *Core) engineHooks() sqlite.Hooks {
	return sqlite.Hooks{Begin: s.begin, BeforeCommit: s.beforeCommit, Ended: s.ended, Examine: s.examine, Tick: s.tick}
}

// begin gives the transaction its time and the end of the audit log. After another program has written, it forgets what was known of runs.
func (s *Core) begin(t *sqlite.Tx, last sqlite.LastWriter) error {
	tx := &Tx{Tx: t, Store: s, Now: ckpt.At(s.Opt.Now()), Head: s.Head, acts: s.acts[:0], agents: map[AgentKey]*AgentRow{}, Tally: s.Usage.Tally()}
	if now := s.Opt.Trusted(); !now.IsZero() {
		tx.Trusted = ckpt.At(now)
	}
	s.present = tx
	if last == sqlite.This {
		return nil
	}
	s.RunCache.ForgetAll()
	s.names.forget()
	if last == sqlite.Nobody {
		return nil
	}
	return s.seeForeign(tx)
}

// beforeCommit writes the rows of the audit log.
func (s *Core) beforeCommit(*sqlite.Tx) error {
	tx := s.present
	if tx.Head.N == s.Head.N {
		return nil
	}
	return tx.writeLog()
}

// ended takes over the results of a transaction, or forgets what the transaction may have changed in memory.
func (s *Core) ended(_ *sqlite.Tx, committed bool) {
	tx := s.present
	if !committed {
		s.RunCache.ForgetAll()
		s.names.forget()
		if tx != nil {
			s.RolledBack(tx)
		}
		return
	}
	s.setHead(tx.Head)
	s.Commits.Add(1)
	s.feed.tell(tx.changed)
	s.Usage.Commit(&tx.Tally)
}

// refused records that an operation was refused, and why.
func (s *Core) refused(o *Op, refusal *ckpt.Error) error {
	e := o.Entry
	e.Outcome, e.Reason = string(refusal.Code), refusal.Message
	if !s.recordable(&e) {
		return nil
	}
	return s.present.Audit(e)
}

// examine checks whether a database that another program has written is still the one that the
// writer knows. It uses a connection that has nothing of the database in memory. If a program has
// copied an older or another file over the database, examine finds that out. If a program has only
// copied the write-ahead log into the database, as the sqlite3 command does, examine accepts the
// file.
func (s *Core) examine(db *sqlx.DB, sound func() error) error {
	var now ChainHead
	if err := db.QueryRowx(`SELECT n, hash FROM audit_head`).Scan(&now.N, &now.Hash); err != nil {
		return fmt.Errorf("the head of its audit log cannot be read: %w", err)
	}
	if now != s.Head {
		return fmt.Errorf("its audit log ends with row %d, not with row %d", now.N, s.Head.N)
	}
	if err := sound(); err != nil {
		return err
	}
	var rows int64
	if err := db.QueryRowx(`SELECT (SELECT count(*) FROM acts) + (SELECT coalesce(sum(removed), 0) FROM audit_archives)`).Scan(&rows); err != nil {
		return fmt.Errorf("its audit log cannot be read: %w", err)
	}
	if rows != s.Head.N {
		return fmt.Errorf("its audit log has %d rows of %d", rows, s.Head.N)
	}
	broken, err := brokenLink(context.Background(), db, s.Head.N-looksBack)
	if err != nil {
		return fmt.Errorf("its audit log cannot be read: %w", err)
	}
	if broken > 0 {
		return fmt.Errorf("row %d of its audit log was changed", broken)
	}
	s.othersWrote() // none of these checks looks into the states
	return nil
}

// AuditLogEvery is how often the head of the audit log is noted.
const AuditLogEvery = time.Hour

// tick does the store's part of maintenance.
func (s *Core) tick(ctx context.Context, now time.Time) {
	s.lookAtRoom()
	s.Usage.RecountStale(ctx)
	s.States.Expire(now)
	s.recordReads(false)
	if now.Sub(s.noted) >= AuditLogEvery {
		s.noted = now
		s.NoteHead("hour")
		if err := s.keepUsage(); err != nil {
			s.Log.Warn("the counts for quotas could not be saved", "error", err)
		}
	}
}
