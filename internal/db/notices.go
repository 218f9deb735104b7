package db

import (
	"context"
	"time"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/outbox"
)

// The methods that internal/notify needs.

// How long notices are remembered after they were delivered, or given up.
const (
	deliveredKeep = 24 * time.Hour
	deadKeep      = 7 * 24 * time.Hour
)

// SetHooks sets which hooks get which notices from now on. Notices that wait for removed hooks are
// given up.
func (s *Store) SetHooks(hooks []ledger.Hook) error {
	s.Core.SetHooks(hooks)
	var waiting []string
	if err := s.RO.Select(&waiting, `SELECT DISTINCT hook FROM deliveries WHERE state = 'pending'`); err != nil || len(waiting) == 0 {
		return sqlite.ReadError(err)
	}
	known := map[string]bool{}
	for _, h := range hooks {
		known[h.Name] = true
	}
	return s.Submit(&ledger.Op{Owner: ledger.Daemon, Claim: sqlite.GoesOn, Do: func(tx *ledger.Tx) error {
		tx.Touches()
		for _, name := range waiting {
			if known[name] {
				continue
			}
			err := tx.Exec(`UPDATE deliveries SET state = 'dead', done_at = ?, error = 'the hook is no longer in the settings'
				WHERE hook = ? AND state = 'pending'`, tx.Now, name)
			if err != nil {
				return err
			}
		}
		return nil
	}})
}

// DueDeliveries returns up to limit deliveries of each hook that are due, and when the next one will
// be due: the zero time if there is none.
func (s *Store) DueDeliveries(ctx context.Context, limit int) (due []outbox.Delivery, next time.Time, err error) {
	now := ckpt.At(s.Opt.Now())
	err = s.Reading(ctx, func(q *sqlx.Tx) error {
		err := q.SelectContext(ctx, &due, `SELECT d.notice, d.hook, n.id, n.type, CAST(n.body AS BLOB) AS body, d.attempts
			FROM (SELECT notice, hook, attempts, next_at, row_number() OVER (PARTITION BY hook ORDER BY next_at, notice) AS place
				FROM deliveries WHERE state = 'pending' AND next_at <= ?) d
			JOIN notices n ON n.n = d.notice WHERE d.place <= ? ORDER BY d.next_at, d.notice`, now, limit)
		if err != nil {
			return err
		}
		var at *ckpt.Time
		if err := q.GetContext(ctx, &at, `SELECT min(next_at) FROM deliveries WHERE state = 'pending' AND next_at > ?`, now); err != nil {
			return err
		}
		if at != nil {
			next = at.Time
		}
		return nil
	})
	return due, next, err
}

// NoteDelivered records the results of attempts.
func (s *Store) NoteDelivered(_ context.Context, list []outbox.Attempt) error {
	if len(list) == 0 {
		return nil
	}
	return s.Submit(&ledger.Op{Owner: ledger.Daemon, Claim: sqlite.GoesOn, Do: func(tx *ledger.Tx) error {
		tx.Touches()
		for _, d := range list {
			next, done := ckpt.At(d.Next), tx.Now
			if d.State == outbox.Pending {
				done = ckpt.Time{}
			} else {
				next = tx.Now
			}
			err := tx.Exec(`UPDATE deliveries SET state = ?, attempts = attempts + 1, next_at = ?, done_at = ?, error = ?
				WHERE notice = ? AND hook = ? AND state = 'pending'`,
				d.State, next, done, ckpt.Ref(d.Error), d.Notice, d.Hook)
			if err != nil {
				return err
			}
		}
		return nil
	}})
}

// ForgetDelivered removes notices that are no longer needed.
func (s *Store) ForgetDelivered(ctx context.Context) error {
	now := s.Opt.Now()
	delivered, dead := ckpt.At(now.Add(-deliveredKeep)), ckpt.At(now.Add(-deadKeep))
	const over = `FROM notices WHERE n NOT IN (SELECT notice FROM deliveries WHERE state = 'pending'
		OR state = 'delivered' AND done_at > ?1 OR state = 'dead' AND done_at > ?2)`
	var some bool
	if err := s.RO.GetContext(ctx, &some, `SELECT EXISTS (SELECT 1 `+over+`)`, delivered, dead); err != nil || !some {
		return sqlite.ReadError(err)
	}
	return s.Submit(&ledger.Op{Owner: ledger.Daemon, Claim: sqlite.Frees, Do: func(tx *ledger.Tx) error {
		tx.Touches()
		return tx.Exec(`DELETE `+over, delivered, dead)
	}})
}

// Announce queues a notice of the daemon itself, outside any other transaction.
func (s *Store) Announce(_ context.Context, kind ckpt.NoticeType, message string) (tested *ckpt.NotifyTested, err error) {
	err = s.Submit(&ledger.Op{Owner: ledger.Daemon, Claim: sqlite.GoesOn, Do: func(tx *ledger.Tx) error {
		tx.Touches()
		id, hooks, err := s.Notify(tx, kind, ckpt.NoticeData{Message: message})
		tested = &ckpt.NotifyTested{ID: id, Hooks: append([]string{}, hooks...)}
		return err
	}})
	return tested, err
}

// NotifyTest queues a notice of type test for every hook.
func (s *Store) NotifyTest(ctx context.Context, sc ckpt.Scope) (tested *ckpt.NotifyTested, err error) {
	e := ledger.Entry(sc, "notify_test", "")
	if !sc.Caller.Admin || sc.Target != "" { // the hooks belong to no owner
		err := ckpt.Errorf(ckpt.CodeDenied, "only an administrator may test the hooks of the settings: leave the owner out")
		s.RefusedBefore(e, err)
		return nil, err
	}
	err = s.Submit(&ledger.Op{Owner: sc.Caller.Owner, Claim: sqlite.GoesOn, Do: func(tx *ledger.Tx) error {
		tx.Touches()
		id, hooks, err := s.Notify(tx, ckpt.NoticeTest, ckpt.NoticeData{Message: "This is a test. Nothing has happened."})
		if err != nil {
			return err
		}
		tested = &ckpt.NotifyTested{ID: id, Hooks: append([]string{}, hooks...)}
		return tx.Audit(e)
	}})
	return tested, err
}

// NotifyStatus counts the notices of each hook by state.
func (s *Store) NotifyStatus(ctx context.Context) (*ckpt.NotifyStatus, error) {
	st := &ckpt.NotifyStatus{Hooks: []ckpt.HookStatus{}}
	err := s.RO.SelectContext(ctx, &st.Hooks, `SELECT hook, count(*) FILTER (WHERE state = 'pending') AS pending,
		count(*) FILTER (WHERE state = 'delivered') AS delivered,
		count(*) FILTER (WHERE state = 'dead') AS dead,
		min(CASE WHEN state = 'pending' THEN (SELECT at FROM notices WHERE n = d.notice) END) AS oldest,
		(SELECT error FROM deliveries l WHERE l.hook = d.hook AND l.state <> 'delivered' AND l.error IS NOT NULL
		ORDER BY l.notice DESC LIMIT 1) AS last_error
		FROM deliveries d GROUP BY hook ORDER BY hook`)
	if err == nil {
		err = s.RO.GetContext(ctx, &st.Dropped, `SELECT coalesce(max(CAST(value AS INTEGER)), 0) FROM meta WHERE key = 'notices_dropped'`)
	}
	return st, sqlite.ReadError(err)
}
