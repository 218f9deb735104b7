package ledger

import (
	"context"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/jmoiron/sqlx"
)

// Audit lists audit rows about the scope's agents, oldest or newest first. An administrator who
// names no owner sees all.
func (s *Core) Audit(ctx context.Context, sc ckpt.Scope, f ckpt.AuditFilter) (*ckpt.AuditPage, error) {
	limit, err := PageSizeOf(f.Limit)
	if err != nil {
		return nil, err
	}
	if err := f.Check(); err != nil {
		return nil, err
	}
	if sc.Admin && sc.Target == "" {
		sc.Target = ckpt.AllOwners
	}
	s.AuditRead(sc, "read_audit", f.Agent, "")
	cursor := s.Numbers(sc)
	page := &ckpt.AuditPage{Audit: []ckpt.AuditRow{}}
	err = s.Reading(ctx, func(q *sqlx.Tx) error {
		page.Audit, err = rowsOfLog(ctx, q, cursor, sc.Whose(), f, limit+1)
		return err
	})
	if err != nil {
		return nil, err
	}
	more := len(page.Audit) > limit
	if more {
		page.Audit = page.Audit[:limit]
	}
	for i := range page.Audit {
		row := &page.Audit[i]
		row.N = cursor.of(row.N)
		if !sc.Admin { // only administrators see how much others write, and the chain over all of it
			row.Prev, row.Hash = "", ""
		}
	}
	if more {
		page.Next = &page.Audit[limit-1].N
	}
	return page, nil
}

// notDecisions are the actions that agents do all the time.
const notDecisions = `('save', 'remove', 'begin_step', 'finish_step', 'append_events', 'graph_writes', 'import', 'finding')`

// auditNumbers finds the numbers of the rows that pass a filter: after one number and before
// another, and for Since after the newest row that is older than it.
const auditNumbers = `SELECT a.n FROM acts a LEFT JOIN places p ON p.id = a.place
		WHERE a.n > ?1 AND a.n > (CASE WHEN ?9 = 0 THEN 0 ELSE coalesce((SELECT n FROM acts WHERE at < ?9 ORDER BY n DESC LIMIT 1), 0) END) AND a.n < ?2
			AND (p.owner = ?3 OR ?3 = '*') AND (?4 = '' OR p.agent = ?4) AND (?5 = '' OR p.run = ?5) AND (?11 = 0 OR p.life = ?11)
			AND (?6 = '' OR a.action = ?6 OR ?6 = 'remove' AND (a.gone IS NOT NULL OR a.more LIKE '%"removed":%')
				OR ?6 = 'decisions' AND a.action NOT IN ` + notDecisions + ` AND a.action NOT LIKE 'admin\_%' ESCAPE '\')
			AND (?7 = '' OR coalesce(a.who, p.owner) = ?7)
			AND (?8 = '' OR a.outcome = ?8 OR ?8 = 'refused' AND a.outcome IS NOT NULL OR ?8 = 'done' AND a.outcome IS NULL)
		ORDER BY a.n DIRECTION LIMIT 0 + ?10`

// rowsOfLog reads the rows that pass a filter, at most limit. It asks the view for one row at a
// time, because SQLite would otherwise make the whole view before it sorts.
func rowsOfLog(ctx context.Context, q *sqlx.Tx, cursor RowNumbers, owner string, f ckpt.AuditFilter, limit int) ([]ckpt.AuditRow, error) {
	after, before, direction := cursor.row(f.After), int64(1<<62), "ASC"
	if f.Newest {
		direction = "DESC"
		if f.Before != 0 {
			before = cursor.row(f.Before)
		}
	}
	since := int64(0)
	if !f.Since.IsZero() {
		since = f.Since.UnixMilli()
	}
	life, err := lifeAsked(ctx, q, owner, &f)
	if err != nil {
		return nil, err
	}
	var numbers []int64
	err = q.SelectContext(ctx, &numbers, strings.ReplaceAll(auditNumbers, "DIRECTION", direction),
		after, before, owner, f.Agent, ckpt.BaseRun(f.Run), f.Action, f.Who, f.Outcome, since, limit, life)
	if err != nil {
		return nil, err
	}
	rows := make([]ckpt.AuditRow, len(numbers))
	for i, n := range numbers {
		err := q.GetContext(ctx, &rows[i], `SELECT n, at, who, pid, action, owner, agent, run, life, subject, outcome, reason, retries, detail,
			prev, hash, removed FROM audit_log WHERE n = ?`, n)
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// lifeAsked is the number of the life that a filter names as main~1; 0 if it names none.
func lifeAsked(ctx context.Context, q *sqlx.Tx, owner string, f *ckpt.AuditFilter) (life int64, err error) {
	if ckpt.BaseRun(f.Run) == f.Run {
		return 0, nil
	}
	err = q.GetContext(ctx, &life, `SELECT r.life FROM runs r JOIN agents a ON a.id = r.agent_id WHERE r.name = ?1 AND a.name = ?2
		AND (a.owner = ?3 OR ?3 = '*') LIMIT 1`, f.Run, f.Agent, owner)
	if IsNoRows(err) {
		return 0, NoRun(f.Agent, f.Run)
	}
	return life, err
}

// RefusedBefore records that a write was refused before its transaction. Internal errors are only
// in the daemon's own log.
func (s *Core) RefusedBefore(e AuditEntry, err error) {
	if e.Outcome = string(ckpt.CodeOf(err)); e.Outcome == "" || e.Outcome == string(ckpt.CodeInternal) {
		return
	}
	e.Reason = ckpt.AsError(err).Message
	s.Record(e)
}

// Refused records a refusal that happened before any other method was called.
func (s *Core) Refused(_ context.Context, sc ckpt.Scope, r ckpt.Refusal) {
	e := Entry(sc, r.Action, r.Agent)
	e.Owner, e.Outcome, e.Reason = sc.Caller.Owner, string(r.Code), r.Reason
	s.Record(e)
}
